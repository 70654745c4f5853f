package log

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/carillon-mq/carillon/broker/env"
)

const (
	// tornDir ends the name of the directory in set-aside that keeps what was cut from a log.
	tornDir = ".torn"
	// tornFiles bounds how many torn tails of a log are kept: the last ones. It is for people who
	// want to know what a power cut took, and each start after one may add a tail.
	tornFiles = 8
	// tornBytes bounds how much of a torn tail is kept, from its beginning on: what one write of
	// many small batches has.
	tornBytes = 1 << 20
)

// keepTorn copies a torn tail that is about to be cut to set-aside/<log>.torn/<segment>.<position>,
// and returns where to. Bytes that can't be read, and a disk without room, keep nothing: no record
// of the log is in there that anybody was told is safe. So the copy isn't synced either.
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
		_ = fsys.Remove(path) // or half of it stays
		return ""
	}
	names, err := fsys.List(dir)
	for ; err == nil && len(names) > tornFiles; names = names[1:] {
		err = fsys.Remove(filepath.Join(dir, names[0]))
	}
	return path
}
