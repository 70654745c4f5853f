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

// Meta is what a log's directory says about itself, so that what coordination knows can be made
// again from the brokers' disks.
type Meta struct {
	Version int    `json:"version"`
	Topic   string `json:"topic"` // its id
	Shard   int    `json:"shard"`
	Part    string `json:"part,omitempty"`
	// Spec is whatever the Topic's owner wants to find again.
	Spec  []byte `json:"spec,omitempty"`
	Epoch uint64 `json:"epoch"`
	// Start is the first offset that is retained. It is written before files go.
	Start uint64 `json:"start"`
	// Durable is an offset up to which the log was safe when this was written: records below it that
	// are not found are missing, not unwritten.
	Durable uint64 `json:"durable"`
	// Cut, if there is one, is a truncation under way: from this offset on nothing is to be left.
	Cut uint64 `json:"cut,omitempty"`
	// Reset, if there is one, is a reset under way: nothing that is here is to be left, and the log
	// begins there.
	Reset uint64 `json:"reset,omitempty"`
	// Clean is where compaction goes on: below, each subject has one record. Less than is true costs time.
	Clean uint64 `json:"clean,omitempty"`
	// Merge, if there is one, is a merge under way: of the segments from there up to MergeEnd one is to be made.
	Merge    uint64 `json:"merge,omitempty"`
	MergeEnd uint64 `json:"mergeEnd,omitempty"`
	// Bad are the segments that were found damaged and not repaired yet, by their first offsets. Damage that opening the log
	// wouldn't find is so known in the next life, too. One that isn't there or is well is no harm.
	Bad []uint64 `json:"bad,omitempty"`
	// Log is a secret number by which markers are told from payloads.
	Log uint64 `json:"log"`
}

const (
	metaName    = "meta.json"
	metaVersion = 1
)

// The file is one line of JSON and one with its checksum: a person can read it, and mend it by
// leaving the second line out.
func encodeMeta(m *Meta) ([]byte, error) {
	line, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(line, "\n%08x\n", crc32.Checksum(line, castagnoli)), nil
}

func decodeMeta(data []byte) (*Meta, error) {
	line, sum, _ := bytes.Cut(data, []byte("\n"))
	if len(sum) > 0 && string(sum) != fmt.Sprintf("%08x\n", crc32.Checksum(line, castagnoli)) {
		return nil, errors.New("the checksum is wrong")
	}
	m := &Meta{}
	if err := json.Unmarshal(line, m); err != nil {
		return nil, err
	}
	switch {
	case m.Version > metaVersion:
		return nil, fmt.Errorf("version %d is newer than this broker knows: %w", m.Version, errNewerMeta)
	case m.Version < 1 || m.Topic == "" || m.Start == 0 || m.Durable < m.Start || m.Log == 0:
		return nil, errors.New("it says what can't be")
	}
	return m, nil
}

var errNewerMeta = errors.New("use that version, or newer")

// writeMeta puts m in place of what was there, in one step that survives a crash once it returns.
func writeMeta(fsys env.FS, dir string, m *Meta) error {
	data, err := encodeMeta(m)
	if err != nil {
		return err
	}
	return replaceFile(fsys, dir, metaName, data)
}

// replaceFile gives a file new content, in one step that survives a crash once it returns.
func replaceFile(fsys env.FS, dir, name string, data []byte) error {
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
	if err := fsys.Rename(aside, path); err != nil {
		return err
	}
	if err := fsys.SyncDir(dir); err != nil {
		return &syncError{err}
	}
	return nil
}

// syncError is a sync that failed, after which the disk can't be trusted any more.
type syncError struct{ error }

func (e *syncError) Unwrap() error { return e.error }

// readMeta returns the directory's meta file; fs.ErrNotExist if there is none and a *CorruptError
// if it can't be believed.
func readMeta(fsys env.FS, dir string) (*Meta, error) {
	path := filepath.Join(dir, metaName)
	info, err := fsys.Stat(path)
	if err != nil {
		return nil, err
	}
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	data := make([]byte, info.Size)
	if err := errors.Join(readFull(f, data, 0), f.Close()); err != nil {
		return nil, err
	}
	m, err := decodeMeta(data)
	if errors.Is(err, errNewerMeta) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		return nil, &CorruptError{File: path, Reason: err.Error()}
	}
	return m, nil
}
