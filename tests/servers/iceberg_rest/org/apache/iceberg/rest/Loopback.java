package org.apache.iceberg.rest;

import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** The REST catalog of Iceberg's test fixtures at a loopback address. Arguments: port, and key=value for its catalog. */
public final class Loopback {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> settings = new HashMap<>();
    settings.put("catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog");
    settings.put("jdbc.schema-version", "V1");
    for (int place = 1; place < arguments.length; place++) {
      String[] parts = arguments[place].split("=", 2);
      settings.put(parts[0], parts[1]);
    }
    Catalog catalog = CatalogUtil.buildIcebergCatalog("tests", settings, new Configuration());
    RESTCatalogAdapter adapter =
        new RESTServerCatalogAdapter(new RESTCatalogServer.CatalogContext(catalog, settings));
    ServletContextHandler context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    context.addServlet(new ServletHolder(new RESTCatalogServlet(adapter)), "/*");
    int port = Integer.parseInt(arguments[0]);
    Server server = new Server(new InetSocketAddress("127.0.0.1", port));
    server.setHandler(context);
    server.start();
    server.join();
  }
}
