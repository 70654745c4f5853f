package log

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/carillon-mq/carillon/broker/env"
)

const (
	// tornDir ends the name of the set-aside directory with the torn tails that were cut from a
	// log.
	tornDir = ".torn"
	// tornFiles is how many torn tails of a log are kept: the newest ones. They show a person what
	// a power cut took. Each start after a power cut may add one.
	tornFiles = 8
	// tornBytes is how much of a torn tail is kept, from its beginning on: one write of many small
	// batches.
	tornBytes = 1 << 20
)

// keepTorn copies a torn tail that is about to be cut to set-aside/<log>.torn/<segment>.<position>,
// and returns the path. On a read error or a full disk nothing is kept. The copy isn't synced: a
// torn tail has no record that was acknowledged as synced.
func (l *Log) keepTorn(s *segment, f env.File, found *scanned) (path string) {
	fsys := l.disk.fs
	dir := filepath.Join(l.disk.dir, setAsideDir, l.name+tornDir)
	data := make([]byte, min(found.cutBytes, tornBytes))
	if readFull(f, data, found.cutAt) != nil || fsys.MkdirAll(dir) != nil {
		return ""
	}
	path = filepath.Join(dir, fmt.Sprintf("%s.%020d", strings.TrimSuffix(filepath.Base(s.path), segmentEnd), found.cutAt))
	to, err := l.disk.createAnew(path)
	if err != nil {
		return ""
	}
	_, err = to.WriteAt(data, 0)
	if closeErr := to.Close(); err != nil || closeErr != nil {
		_ = fsys.Remove(path) // an incomplete copy is of no use
		return ""
	}
	names, err := fsys.List(dir)
	for ; err == nil && len(names) > tornFiles; names = names[1:] {
		err = fsys.Remove(filepath.Join(dir, names[0]))
	}
	return path
}
