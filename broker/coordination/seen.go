package coordination

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Seen is what a broker saw of etcd last. If etcd does not show it any more, etcd was restored from
// a backup.
type Seen struct {
	Generation int64  `json:"generation,omitempty"`
	Revision   int64  `json:"revision"`
	Marks      []Mark `json:"marks,omitempty"` // the newest values, the oldest first
}

// Mark is a value that etcd held, and that its history has for good: a key as of its revision.
type Mark struct {
	Key      string `json:"key"`
	Revision int64  `json:"revision"`
	Created  int64  `json:"created"` // create revision
	Lease    int64  `json:"lease,omitempty"`
	Sum      uint64 `json:"sum"` // of the value
}

// SeenStore keeps a Seen over restarts of a broker. Its methods are not called concurrently.
type SeenStore interface {
	Load() (*Seen, error) // nil: there is none
	Save(Seen) error
}

// revisionLeap is an advance of the revision that only etcdutl makes: --bump-revision 1000000000,
// as etcd's manual advises, with --mark-compacted, after which no earlier value can be compared.
// Brokers write some revisions per second.
const revisionLeap = 100_000_000

// RestoredError reports that etcd does not have what this process saw in it before.
type RestoredError struct{ Why string }

func (e *RestoredError) Error() string {
	return "etcd was restored from a backup, or rolled back: " + e.Why
}

func markOf(kv *mvccpb.KeyValue) Mark {
	sum := fnv.New64a()
	_, _ = sum.Write(kv.GetValue()) // never fails
	return Mark{Key: string(kv.GetKey()), Revision: kv.GetModRevision(), Created: kv.GetCreateRevision(), Lease: kv.GetLease(), Sum: sum.Sum64()}
}

// compare returns a *RestoredError if a read does not show what was seen.
func (seen *Seen) compare(marks []Mark, generation int64, done *clientv3.TxnResponse) error {
	if at := done.Header.GetRevision(); at < seen.Revision {
		return &RestoredError{fmt.Sprintf("it is at revision %d, and was at %d", at, seen.Revision)}
	}
	if at := done.Header.GetRevision(); seen.Revision > 0 && at-seen.Revision > revisionLeap {
		return &RestoredError{fmt.Sprintf("it is at revision %d, and was at %d", at, seen.Revision)}
	}
	if generation < seen.Generation {
		return &RestoredError{fmt.Sprintf("it is in generation %d, and was in %d", generation, seen.Generation)}
	}
	for i, m := range marks {
		if kv := readResult(done, i+1); kv == nil || markOf(kv) != m {
			return &RestoredError{fmt.Sprintf("its history lacks the value that %s had at revision %d", m.Key, m.Revision)}
		}
	}
	return nil
}

// seenFile is the file of a Seen on a broker's volume.
const seenFile = "etcd-seen.json"

// SeenFile keeps a Seen in a file of the directory.
func SeenFile(dir string) SeenStore { return seenDir(dir) }

type seenDir string

type seenValue struct {
	V int `json:"v"`
	Seen
}

const seenValueVersion = 1

func (d seenDir) Load() (*Seen, error) {
	path := filepath.Join(string(d), seenFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var value seenValue
	if err := decodeValue(path, data, seenValueVersion, &value, &value.V); err != nil {
		return nil, err
	}
	return &value.Seen, nil
}

func (d seenDir) Save(seen Seen) error {
	data, err := json.Marshal(seenValue{seenValueVersion, seen})
	if err != nil {
		return err
	}
	return writeDurably(string(d), seenFile, append(data, '\n'))
}
