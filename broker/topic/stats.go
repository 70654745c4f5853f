package topic

// Stats are counters and gauges of the Topics on this broker.
type Stats struct {
	Topics     int // of the cluster
	Open       int // shards that this broker leads and has open
	Troubled   int // shards that it leads and can't serve as it should
	Messages   uint64
	Bytes      int64
	Appended   uint64 // messages
	Duplicates uint64
	Refused    map[string]uint64 // messages, by reason
	Unanswered int64             // messages whose answer waits for the disk
	IDs        int64             // in deduplication windows
}
