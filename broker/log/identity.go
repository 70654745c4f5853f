package log

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"

	"github.com/carillon-mq/carillon/broker/env"
)

// identityFile is the content of meta.json: the log's identity and secret. It is written once. A
// lost manifest is rebuilt with it. Brokers of version 018b7c1 and older write version 1, which
// holds everything that is in the manifest now; they refuse version 2.
type identityFile struct {
	Version int    `json:"version"`
	Topic   string `json:"topic"`
	Shard   int    `json:"shard"`
	Part    string `json:"part,omitempty"`
	Log     uint64 `json:"log"`

	// Fields of version 1 only.
	Spec    []byte `json:"spec,omitempty"`
	Epoch   uint64 `json:"epoch,omitempty"`
	Start   uint64 `json:"start,omitempty"`
	Durable uint64 `json:"durable,omitempty"`
	// Cut is set during a truncation: all records from this offset on are to be removed.
	Cut uint64 `json:"cut,omitempty"`
	// Reset is set during a reset: all records are to be removed, and the log begins at this
	// offset.
	Reset uint64 `json:"reset,omitempty"`
	Clean uint64 `json:"clean,omitempty"`
	// Merge is set during a merge: the segments from this offset up to MergeEnd are to become one.
	Merge    uint64   `json:"merge,omitempty"`
	MergeEnd uint64   `json:"mergeEnd,omitempty"`
	Bad      []uint64 `json:"bad,omitempty"`
}

const (
	metaName    = "meta.json"
	metaVersion = 2
	// metaSole is the version without a manifest: a manifest beside such a file is ignored.
	metaSole = 1
)

// encodeIdentity returns the file: one line of JSON and one with its checksum. A person can read
// it, and edit it if the second line is removed.
func encodeIdentity(m *identityFile) ([]byte, error) {
	line, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(line, "\n%08x\n", crc32.Checksum(line, castagnoli)), nil
}

func decodeIdentity(data []byte) (*identityFile, error) {
	line, sum, _ := bytes.Cut(data, []byte("\n"))
	if len(sum) > 0 && string(sum) != fmt.Sprintf("%08x\n", crc32.Checksum(line, castagnoli)) {
		return nil, errors.New("the checksum is wrong")
	}
	m := &identityFile{}
	if err := json.Unmarshal(line, m); err != nil {
		return nil, err
	}
	switch {
	case m.Version > metaVersion:
		return nil, fmt.Errorf("version %d is newer than this broker knows: %w", m.Version, errNewer)
	case m.Version < 1 || m.Topic == "" || m.Log == 0, m.Version == metaSole && (m.Start == 0 || m.Durable < m.Start):
		return nil, errors.New("it says what can't be")
	}
	return m, nil
}

// identity returns the content of meta.json for a log with this manifest.
func (m *Manifest) identity() *identityFile {
	return &identityFile{Version: metaVersion, Topic: m.Topic, Shard: m.Shard, Part: m.Part, Log: m.Log}
}

// manifest returns the manifest for a file of version 1, without segments and epochs.
func (m *identityFile) manifest() *Manifest {
	out := &Manifest{Topic: m.Topic, Shard: m.Shard, Part: m.Part, Log: m.Log, Spec: m.Spec, Epoch: m.Epoch,
		Start: max(m.Start, 1), Durable: max(m.Durable, m.Start, 1), Clean: m.Clean, Bad: m.Bad}
	return out
}

// writeIdentity atomically replaces meta.json. The replacement is durable once the directory is
// synced.
func writeIdentity(fsys env.FS, dir string, m *identityFile) error {
	data, err := encodeIdentity(m)
	if err != nil {
		return err
	}
	return placeFile(fsys, dir, metaName, data)
}

// replaceFile atomically replaces the content of a file. The replacement is durable when it
// returns.
func replaceFile(fsys env.FS, dir, name string, data []byte) error {
	if err := placeFile(fsys, dir, name, data); err != nil {
		return err
	}
	if err := fsys.SyncDir(dir); err != nil {
		return &syncError{err}
	}
	return nil
}

// placeFile is replaceFile without the sync of the directory.
func placeFile(fsys env.FS, dir, name string, data []byte) error {
	path := filepath.Join(dir, name)
	aside := path + ".new"
	if err := fsys.Remove(aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(aside)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		if err = f.Sync(); err != nil {
			err = &syncError{err}
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return fsys.Rename(aside, path)
}

// syncError is a failed sync. It fails the disk: see Disk.fail.
type syncError struct{ error }

func (e *syncError) Unwrap() error { return e.error }

// readIdentity reads meta.json. The error is fs.ErrNotExist if there is none, and a *CorruptError
// if it is invalid.
func readIdentity(fsys env.FS, dir string) (*identityFile, error) {
	path := filepath.Join(dir, metaName)
	info, err := fsys.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size > largestManifest {
		return nil, &CorruptError{File: path, Reason: fmt.Sprintf("it can't have %d bytes", info.Size)}
	}
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	data := make([]byte, info.Size)
	if err := errors.Join(readFull(f, data, 0), f.Close()); err != nil {
		return nil, err
	}
	m, err := decodeIdentity(data)
	if errors.Is(err, errNewer) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		return nil, &CorruptError{File: path, Reason: err.Error()}
	}
	return m, nil
}
