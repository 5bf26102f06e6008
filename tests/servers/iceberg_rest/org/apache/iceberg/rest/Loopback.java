package org.apache.iceberg.rest;

import java.net.InetSocketAddress;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.jdbc.JdbcCatalog;
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

  /** Registers metadata over a table that is there, as the REST protocol has it, which Iceberg's own does not. */
  public static final class RegisteringOver extends JdbcCatalog {
    private String uri;

    @Override
    public void initialize(String name, Map<String, String> properties) {
      uri = properties.get("uri");
      super.initialize(name, properties);
    }

    @Override
    public Table registerTable(TableIdentifier table, String place, boolean overwrite) {
      if (!overwrite || !tableExists(table)) {
        return registerTable(table, place);
      }
      String moved =
          "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = metadata_location"
              + " WHERE table_namespace = ? AND table_name = ?";
      try (Connection connection = DriverManager.getConnection(uri);
          PreparedStatement statement = connection.prepareStatement(moved)) {
        statement.setString(1, place);
        statement.setString(2, table.namespace().toString());
        statement.setString(3, table.name());
        statement.executeUpdate();
      } catch (SQLException failure) {
        throw new IllegalStateException(failure);
      }
      return loadTable(table);
    }
  }
}
