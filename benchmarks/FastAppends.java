import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.CommitFailedException;

/**
 * Writers, threads with a catalog of their own, append one file after another by Iceberg's own fast append.
 * Arguments: the table, another to warm up at, writers, seconds, and key=value for the catalog.
 */
public final class FastAppends {
  private static final int WARM = 20;
  private static final long ROWS = 50_000;

  private static Table load(Map<String, String> settings, String name) {
    Catalog catalog = CatalogUtil.buildIcebergCatalog("lake", settings, new Configuration());
    return catalog.loadTable(TableIdentifier.of("db", name));
  }

  private static void append(Table table, int number) {
    DataFile file =
        DataFiles.builder(table.spec())
            .withPath(table.location() + "/data/" + number + "-" + UUID.randomUUID() + ".parquet")
            .withFormat("parquet")
            .withFileSizeInBytes(2 * 1024 * 1024)
            .withMetrics(metrics(number))
            .build();
    table.newFastAppend().appendFile(file).commit();
  }

  private static Metrics metrics(long number) {
    Map<Integer, Long> sizes = new HashMap<>();
    Map<Integer, Long> values = new HashMap<>();
    Map<Integer, Long> nulls = new HashMap<>();
    Map<Integer, ByteBuffer> lower = new HashMap<>();
    Map<Integer, ByteBuffer> upper = new HashMap<>();
    for (int column = 1; column <= 10; column++) {
      sizes.put(column, 200_000L);
      values.put(column, ROWS);
      nulls.put(column, 0L);
      lower.put(column, bound(number));
      upper.put(column, bound(number + 1));
    }
    return new Metrics(ROWS, sizes, values, nulls, null, lower, upper);
  }

  private static ByteBuffer bound(long value) {
    return ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(0, value);
  }

  public static void main(String[] arguments) throws Exception {
    int writers = Integer.parseInt(arguments[2]);
    double seconds = Double.parseDouble(arguments[3]);
    Map<String, String> settings = new HashMap<>();
    for (int place = 4; place < arguments.length; place++) {
      String[] parts = arguments[place].split("=", 2);
      settings.put(parts[0], parts[1]);
    }
    Table warm = load(settings, arguments[1]);
    for (int number = 0; number < WARM; number++) {
      append(warm, number);
    }
    OperatingSystemMXBean system =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    long[] before = new long[1];
    CyclicBarrier gate = new CyclicBarrier(writers, () -> before[0] = system.getProcessCpuTime());
    ExecutorService pool = Executors.newFixedThreadPool(writers);
    List<Future<int[]>> running = new ArrayList<>();
    for (int writer = 0; writer < writers; writer++) {
      Table table = load(settings, arguments[0]);
      running.add(
          pool.submit(
              () -> {
                gate.await();
                long end = System.nanoTime() + (long) (seconds * 1e9);
                int[] counts = new int[2];
                for (int number = 0; System.nanoTime() < end; number++) {
                  try {
                    append(table, number);
                    if (System.nanoTime() < end) {
                      counts[0]++;
                    }
                  } catch (CommitFailedException lost) {
                    counts[1]++;
                    table.refresh();
                  }
                }
                return counts;
              }));
    }
    StringBuilder commits = new StringBuilder();
    int failed = 0;
    for (Future<int[]> each : running) {
      commits.append(commits.length() == 0 ? "" : ", ").append(each.get()[0]);
      failed += each.get()[1];
    }
    double processor = (system.getProcessCpuTime() - before[0]) / 1e6;
    System.out.println(
        "{\"commits\": [" + commits + "], \"failed\": " + failed + ", \"processor\": " + processor + "}");
    System.exit(0);
  }
}
