import java.util.List;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.util.Bytes;

/** What no Thrift gateway can do: `TABLE ROW` splits a table at a row, in hex, and moves each of its regions. */
public class Regions {
    public static void main(String[] args) throws Exception {
        TableName table = TableName.valueOf(args[0]);
        try (var connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
                Admin admin = connection.getAdmin();
                RegionLocator locator = connection.getRegionLocator(table)) {
            int before = admin.getRegions(table).size();
            admin.split(table, Bytes.fromHex(args[1]));
            while (admin.getRegions(table).size() == before) {
                Thread.sleep(100);
            }
            move(locator, admin);
        }
    }

    /** Each region goes to a server that does not have it. */
    private static void move(RegionLocator locator, Admin admin) throws Exception {
        List<ServerName> servers = List.copyOf(admin.getRegionServers());
        for (var place : locator.getAllRegionLocations()) {
            for (ServerName server : servers) {
                if (!server.equals(place.getServerName())) {
                    admin.move(place.getRegion().getEncodedNameAsBytes(), server);
                    break;
                }
            }
        }
    }
}
