import java.util.List;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * What an operator does in the shell of HBase, and no Thrift gateway can: `scatter TABLE ROW` splits a table at a row, in
 * hex, and moves each of its regions; `unlogged TABLE` sets its durability to none; `namespace NAME` makes one.
 */
public class Operator {
    public static void main(String[] args) throws Exception {
        try (var connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
                Admin admin = connection.getAdmin()) {
            switch (args[0]) {
                case "scatter" -> {
                    TableName table = TableName.valueOf(args[1]);
                    split(admin, table, Bytes.fromHex(args[2]));
                    try (RegionLocator locator = connection.getRegionLocator(table)) {
                        move(locator, admin);
                    }
                }
                case "unlogged" -> {
                    var found = admin.getDescriptor(TableName.valueOf(args[1]));
                    var builder = TableDescriptorBuilder.newBuilder(found);
                    admin.modifyTable(builder.setDurability(Durability.SKIP_WAL).build());
                }
                case "namespace" -> admin.createNamespace(NamespaceDescriptor.create(args[1]).build());
                default -> throw new IllegalArgumentException(args[0]);
            }
        }
    }

    private static void split(Admin admin, TableName table, byte[] row) throws Exception {
        int before = admin.getRegions(table).size();
        admin.split(table, row);
        while (admin.getRegions(table).size() == before) {
            Thread.sleep(100);
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
