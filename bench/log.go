package bench

import (
	"fmt"
	"slices"
	"time"
)

// Log configures publishers that write small records into one shard as fast as they are let, and
// then readers that read all of them. Many records travel in one message; it needs a server that
// knows batches of records (docs/protocol.md).
type Log struct {
	Publishers       []int
	Readers          []int // as many as Publishers, or one number for all
	Batches          []int // records in a message, and in an answer
	PayloadBytes     int   // of a record
	Window           int   // messages, or answers, under way of each; 0 is what fits the batch
	Durability       string
	Replicas         int
	Warmup, Duration time.Duration
	MostRecords      int64 // in all, after which writing ends
}

const scenarioLog = "log"

// What the stream promises when it acknowledges.
const (
	DurabilitySynced     = "synced"
	DurabilityReplicated = "replicated"
	DurabilityMemory     = "memory"
)

// The bounds of a log load.
const (
	maxLogClients     = 256
	maxLogBatch       = 65_536
	maxLogRecordBytes = 4096
	maxLogWindow      = 65_536
	// maxLogMessage is what an answer may bring.
	maxLogMessage = 8<<20 - 4<<10
	// singleWindow and batchWindow are usual: enough for a round trip, and little beside what a
	// client may leave unread.
	singleWindow, batchWindow = 1024, 4
	// readWindow is the same for answers of a few records each: a broker keeps 1,024 such requests
	// of all clients.
	readWindow = 32
)

// A logPlan is what a Workload of this scenario adds.
type logPlan struct {
	publishers, readers, batch, replicas int
	window, reads                        int // under way of each publisher, and of each reader
	durability                           string
	most                                 int64
}

// Workloads makes one plan for each batch and number of publishers.
func (l Log) Workloads() ([]Workload, error) {
	readers := l.Readers
	if len(readers) == 1 {
		readers = slices.Repeat(readers, len(l.Publishers))
	}
	if len(readers) != len(l.Publishers) {
		return nil, fmt.Errorf("%d numbers of publishers and %d of readers; give as many, or one of readers", len(l.Publishers), len(readers))
	}
	if l.PayloadBytes < 16 || l.PayloadBytes > maxLogRecordBytes || l.PayloadBytes%8 != 0 {
		return nil, fmt.Errorf("records have %d bytes; give 16 to %d, a multiple of 8", l.PayloadBytes, maxLogRecordBytes)
	}
	if err := checkCommon(slices.Concat(l.Publishers, readers, l.Batches), "clients or records in a batch", maxPayloadBytes, l.Warmup, l.Duration, ClientLight); err != nil {
		return nil, err
	}
	if len(l.Publishers) == 0 || len(l.Batches) == 0 {
		return nil, fmt.Errorf("no number of publishers, or of records in a batch, is given")
	}
	if err := checkReplicas(l.Replicas); err != nil {
		return nil, err
	}
	if l.Window < 0 || l.Window > maxLogWindow {
		return nil, fmt.Errorf("window is %d messages; give 1 to %d, or 0 for what is usual", l.Window, maxLogWindow)
	}
	if err := checkDurability(l.Durability); err != nil {
		return nil, err
	}
	if l.MostRecords < 1 {
		return nil, fmt.Errorf("at most %d records; give 1 or more", l.MostRecords)
	}
	var made []Workload
	for _, batch := range l.Batches {
		if batch > maxLogBatch || batch*prefixed(l.PayloadBytes) > maxLogMessage {
			return nil, fmt.Errorf("a batch of %d records of %d bytes; give at most %d records, and %d bytes in all", batch, l.PayloadBytes, maxLogBatch, maxLogMessage)
		}
		for i, publishers := range l.Publishers {
			if publishers > maxLogClients || readers[i] > maxLogClients {
				return nil, fmt.Errorf("%d publishers and %d readers; give at most %d", publishers, readers[i], maxLogClients)
			}
			made = append(made, l.workload(publishers, readers[i], batch))
		}
	}
	return made, nil
}

func (l Log) workload(publishers, readers, batch int) Workload {
	window, reads := l.Window, l.Window
	switch {
	case window == 0 && batch < 64:
		window, reads = singleWindow, readWindow
	case window == 0:
		window, reads = batchWindow, batchWindow
	}
	return Workload{
		Scenario: scenarioLog, Size: publishers, Client: ClientLight,
		Parameters: Parameters{
			Publishers: publishers, Readers: readers, Batch: batch, Window: window, Replicas: l.Replicas, Durability: l.Durability,
			PayloadBytes: l.PayloadBytes, WarmupNS: int64(l.Warmup), DurationNS: int64(l.Duration),
		},
		log: &logPlan{
			publishers: publishers, readers: readers, batch: batch, replicas: l.Replicas,
			window: window, reads: reads, durability: l.Durability, most: l.MostRecords,
		},
	}
}

// LogFigures are what a run of the log scenario found. Rates count what was acknowledged, or read
// and checked, within the time that is measured.
type LogFigures struct {
	Written     int64   `json:"written_records"`
	WriteRate   float64 `json:"written_records_per_s"`
	Read        int64   `json:"read_records"`
	ReadRate    float64 `json:"read_records_per_s"`
	WriteCPU    CPU     `json:"write_client_cpu"`
	ReadCPU     CPU     `json:"read_client_cpu"`
	WriteServer *CPU    `json:"write_server_cpu,omitempty"`
	ReadServer  *CPU    `json:"read_server_cpu,omitempty"`
}

// summarizeLogs has the medians of rates, and sums of counts.
func summarizeLogs(runs []Run) *LogFigures {
	var whole []Run
	s := &LogFigures{}
	for _, run := range runs {
		if run.Log == nil {
			continue
		}
		whole = append(whole, run)
		s.Written, s.Read = s.Written+run.Log.Written, s.Read+run.Log.Read
	}
	if len(whole) == 0 {
		return nil
	}
	s.WriteRate = median(whole, func(r Run) float64 { return r.Log.WriteRate })
	s.ReadRate = median(whole, func(r Run) float64 { return r.Log.ReadRate })
	s.WriteCPU.Cores = median(whole, func(r Run) float64 { return r.Log.WriteCPU.Cores })
	s.ReadCPU.Cores = median(whole, func(r Run) float64 { return r.Log.ReadCPU.Cores })
	return s
}
