import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.api.ThriftHiveMetastore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/**
 * Runs Hive's metastore, 2.3 or 3.1, at a port of the loopback address: its own program listens at every
 * address, and makes no tables for locks.
 */
public class Loopback {
  public static void main(String[] arguments) throws Throwable {
    Object settings = readSettings();
    try {
      call(TxnDbUtil.class, "prepDb", settings);
    } catch (NoSuchMethodException before3) {
      call(TxnDbUtil.class, "prepDb");
    }
    IHMSHandler handler =
        (IHMSHandler) call(HiveMetaStore.class, "newRetryingHMSHandler", "hive", settings, false);
    int port = Integer.parseInt(arguments[0]);
    TServerSocket socket = new TServerSocket(new InetSocketAddress("127.0.0.1", port));
    TThreadPoolServer.Args served = new TThreadPoolServer.Args(socket);
    new TThreadPoolServer(served.processor(new ThriftHiveMetastore.Processor<>(handler))).serve();
  }

  private static Object readSettings() throws Exception {
    try {
      Class<?> since3 = Class.forName("org.apache.hadoop.hive.metastore.conf.MetastoreConf");
      return since3.getMethod("newMetastoreConf").invoke(null);
    } catch (ClassNotFoundException before3) {
      return Class.forName("org.apache.hadoop.hive.conf.HiveConf").getConstructor().newInstance();
    }
  }

  private static Object call(Class<?> of, String name, Object... given) throws Exception {
    for (Method each : of.getDeclaredMethods()) {
      Class<?>[] taken = each.getParameterTypes();
      boolean fits = each.getName().equals(name) && taken.length == given.length;
      if (fits && (given.length == 0 || taken[0].isInstance(given[0]))) {
        each.setAccessible(true);
        return each.invoke(null, given);
      }
    }
    throw new NoSuchMethodException(name);
  }
}
