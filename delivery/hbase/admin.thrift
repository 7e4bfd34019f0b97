// What Hoot asks of HBase's second Thrift interface: tables made in regions, with settings that the first one lacks.
// The names and numbers are HBase's own (hbase-thrift, org/apache/hadoop/hbase/thrift2/hbase.thrift).

enum TBloomFilterType { NONE = 0, ROW = 1 }

enum TDataBlockEncoding { NONE = 0, FAST_DIFF = 4 }

struct TTableName {
  1: optional binary ns
  2: required binary qualifier
}

struct TColumnFamilyDescriptor {
  1: required binary name
  5: optional TBloomFilterType bloomnFilterType
  8: optional TDataBlockEncoding dataBlockEncoding
  10: optional i32 maxVersions
}

struct TTableDescriptor {
  1: required TTableName tableName
  2: optional list<TColumnFamilyDescriptor> columns
}

exception TIOError {
  1: optional string message
  2: optional bool canRetry
}

service THBaseService {
  void createTable(1: required TTableDescriptor desc, 2: optional list<binary> splitKeys) throws (1: TIOError io)
}
