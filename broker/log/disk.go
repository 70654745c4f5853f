package log

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/limits"
)

// Options of a disk. The zero value of each field is the bound in package limits.
type Options struct {
	// The committer calls Committed after each round, when it has called the completions of all
	// appends in it. So acks of one round can be sent together. It may be nil.
	Committed func(idle bool)

	SegmentSmallest, SegmentLargest int64
	TailBytes, Backlog              int64
	OpenSegments                    int
	SyncAllFrom                     int
}

// Disk is a directory with logs, and the one goroutine that writes and syncs them.
type Disk struct {
	fs      env.FS
	dir     string
	opts    Options
	handles handles
	stats   diskStats
	rounds  roundClock
	mark    []byte
	points  syncPoints
	journal *pointJournal
	volume  env.Volume // nil if the system can't sync a whole file system

	backlog atomic.Int64 // bytes that wait to be written

	deletingAside sync.Mutex // comes before each Log.admin
	asideUsage    asideUsage

	savingChecks sync.Mutex // comes before checksMu
	checksMu     sync.Mutex
	// checks has the scrub times of each log, by name. Those of an open log are from its opening or
	// the last SaveChecks.
	checks map[string]segmentChecks

	mu      sync.Mutex
	logs    map[string]*Log
	dirty   []*Log
	failed  error
	unclean error // why CloseMarked leaves no mark
	closing bool
	room    *sync.Cond // the backlog shrank, the disk failed or is closing

	wake chan struct{}
	stop chan struct{}
	done chan struct{}

	// Owned by the committer.
	spare []*Log
	tails list.List // of tail, oldest first
	held  int64     // bytes in tails

	listing int // logs that write to their manifests in this round
}

const (
	shardsDir   = "shards"
	setAsideDir = "set-aside"
	deletedDir  = "deleted"
)

// Identity identifies a log.
type Identity struct {
	Topic string // immutable id
	Shard int
	Part  string // empty for the data; "state" for cursors
}

// Name returns the name of the log's directory.
func (i Identity) Name() string {
	if i.Part == "" {
		return fmt.Sprintf("%s-%d", i.Topic, i.Shard)
	}
	return fmt.Sprintf("%s-%d.%s", i.Topic, i.Shard, i.Part)
}

// ParseName returns the Identity of a log's directory. ok is false if the name is not one of a log.
// Topic is then the part before the last hyphen, or the whole name.
func ParseName(name string) (id Identity, ok bool) {
	at := strings.LastIndexByte(name, '-')
	if at < 0 {
		return Identity{Topic: name}, false
	}
	shard, part, _ := strings.Cut(name[at+1:], ".")
	number, err := strconv.Atoi(shard)
	id = Identity{Topic: name[:at], Shard: number, Part: part}
	return id, err == nil && id.Topic != "" && id.Name() == name
}

// OpenDisk makes dir ready for logs and starts the committer. Close ends it.
func OpenDisk(fsys env.FS, dir string, opts Options) (*Disk, error) {
	orElse := func(v *int64, def int64) {
		if *v == 0 {
			*v = def
		}
	}
	orElse(&opts.SegmentSmallest, limits.SegmentSmallest)
	orElse(&opts.SegmentLargest, limits.SegmentLargest)
	orElse(&opts.TailBytes, limits.TailBytes)
	orElse(&opts.Backlog, limits.DiskBacklog)
	if opts.OpenSegments == 0 {
		opts.OpenSegments = limits.OpenSegments
	}
	if opts.SyncAllFrom == 0 {
		opts.SyncAllFrom = limits.SyncAllFrom
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, err
	}
	mark, err := takeMark(fsys, dir)
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{shardsDir, setAsideDir, deletedDir} {
		if err := fsys.MkdirAll(filepath.Join(dir, sub)); err != nil {
			return nil, err
		}
	}
	checks, err := readChecks(fsys, dir)
	if err != nil {
		return nil, err
	}
	journal, points := openPoints(fsys, dir)
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := fsys.SyncDir(d); err != nil {
			return nil, err
		}
	}
	d := &Disk{fs: fsys, dir: dir, opts: opts, mark: mark, journal: journal, points: points, checks: checks,
		logs: map[string]*Log{}, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	d.rounds.base = time.Now()
	d.handles.fs, d.handles.keep, d.handles.open = fsys, opts.OpenSegments, list.New()
	d.room = sync.NewCond(&d.mu)
	if err := d.finishDeletions(); err != nil {
		return nil, err
	}
	if d.volume, err = fsys.OpenVolume(dir); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, err
	}
	go d.run()
	return d, nil
}

// Stored describes a log on the disk.
type Stored struct {
	Name string
	Meta Manifest
	Err  error // why Meta is unknown, except for the log's identity
}

// Names returns the names of the logs on the disk, opened or not. It reads none of them.
func (d *Disk) Names() ([]string, error) {
	names, err := d.fs.List(filepath.Join(d.dir, shardsDir))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		if _, err := d.fs.Stat(filepath.Join(d.logDir(name), manifestName)); err == nil {
			return false
		}
		_, there := d.Stored(name)
		return !there
	}), nil
}

// Stored reads the manifest of a log, open or not; false: there is no such log.
func (d *Disk) Stored(name string) (out Stored, there bool) { return d.storedIn(d.logDir(name), name) }

// storedIn is Stored for a log in another directory.
func (d *Disk) storedIn(dir, name string) (out Stored, there bool) {
	out.Name = name
	id, idErr := readIdentity(d.fs, dir)
	if id != nil && id.Version == metaSole {
		out.Meta = *id.manifest()
		return out, true
	}
	m, _, err := readManifest(d.fs, dir)
	if err == nil {
		out.Meta = *m
		return out, true
	}
	if id != nil {
		out.Meta = Manifest{Topic: id.Topic, Shard: id.Shard, Part: id.Part, Log: id.Log}
	}
	if errors.Is(err, fs.ErrNotExist) && (idErr == nil || errors.Is(idErr, fs.ErrNotExist)) {
		files, listErr := d.fs.List(dir)
		if errors.Is(listErr, fs.ErrNotExist) || listErr == nil && !slices.ContainsFunc(files, isSegment) {
			return out, false // nothing was made, or a crash interrupted the creation
		}
	}
	out.Err = err
	return out, true
}

func isSegment(name string) bool {
	_, ok := segmentFile(name)
	return ok
}

func (d *Disk) logDir(name string) string { return filepath.Join(d.dir, shardsDir, name) }

// FirstCopy is the state of a copy (see Log.SetCopy) in the first manifest of a log. It is durable
// with that manifest, so no crash leaves the log without a state. An existing manifest keeps its
// own state.
type FirstCopy struct {
	Made    []byte // of a log that is made
	Rebuilt []byte // of a log whose lost manifest is rebuilt from the segments
}

// Open is OpenCopy for a log without a state of the copy.
func (d *Disk) Open(id Identity, start, epoch uint64, spec []byte) (*Log, error) {
	return d.OpenCopy(id, start, epoch, spec, FirstCopy{})
}

// OpenCopy opens a log, or creates it. A new log begins at start (0 is 1) and with epoch, spec and
// first.Made; an existing log ignores them.
func (d *Disk) OpenCopy(id Identity, start, epoch uint64, spec []byte, first FirstCopy) (*Log, error) {
	name := id.Name()
	if id.Topic == "" || filepath.Base(name) != name {
		return nil, fmt.Errorf("%q can't name a log", name)
	}
	if err := errors.Join(checkCopy(name, first.Made), checkCopy(name, first.Rebuilt)); err != nil {
		return nil, err
	}
	l := &Log{disk: d, id: id, name: name, dir: d.logDir(name), chunkSize: smallestChunk}
	l.idle = sync.NewCond(&l.mu)
	d.mu.Lock()
	if d.closing || d.logs[name] != nil {
		d.mu.Unlock()
		return nil, fmt.Errorf("log %s: already open, or the disk is closed", name)
	}
	d.logs[name] = l
	d.mu.Unlock()
	if err := l.open(max(start, 1), epoch, spec, first); err != nil {
		l.dropHandles()
		d.mu.Lock()
		delete(d.logs, name)
		d.mu.Unlock()
		return nil, fmt.Errorf("log %s: open: %w", name, d.noticed(err))
	}
	l.mu.Lock()
	l.recallChecks()
	l.mu.Unlock()
	d.mu.Lock()
	l.opened = true
	d.mu.Unlock()
	if l.rewritten {
		l.mu.Lock()
		d.journal.note(l)
		l.mu.Unlock()
		d.wakeUp()
	}
	return l, nil
}

func newSecret() uint64 { return rand.Uint64() | 1 }

// openLogs returns all logs that are open, without those that are being opened.
func (d *Disk) openLogs() []*Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	logs := make([]*Log, 0, len(d.logs))
	for _, l := range d.logs {
		if l.opened {
			logs = append(logs, l)
		}
	}
	return logs
}

// Failed returns the reason that the disk refuses appends, or nil.
func (d *Disk) Failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// fail makes the disk refuse all appends from now on. A failed sync can't be repeated, because the
// kernel may have dropped the dirty pages.
func (d *Disk) fail(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == nil {
		d.failed = &FailedError{What: "disk " + d.dir, Err: err}
		d.room.Broadcast()
	}
	return d.failed
}

// noteUnclean records why CloseMarked must not leave a mark.
func (d *Disk) noteUnclean(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unclean == nil {
		d.unclean = err
	}
}

// noticed fails the disk if err is a failed sync, and returns err.
func (d *Disk) noticed(err error) error {
	if _, ok := errors.AsType[*syncError](err); ok {
		return d.fail(err)
	}
	return err
}

// Free returns the free space of the disk in bytes.
func (d *Disk) Free() (uint64, error) { return d.fs.Free(d.dir) }

// Close closes all logs and ends the committer.
func (d *Disk) Close() error {
	d.mu.Lock()
	if d.closing {
		d.mu.Unlock()
		<-d.done
		return nil
	}
	d.closing = true
	open := make([]*Log, 0, len(d.logs))
	for _, l := range d.logs {
		open = append(open, l)
	}
	d.room.Broadcast()
	d.mu.Unlock()
	var errs []error
	for _, l := range open {
		if err := l.Close(); err != nil && !errors.Is(err, ErrClosed) {
			errs = append(errs, err)
		}
	}
	close(d.stop)
	<-d.done
	d.journal.end()
	if d.volume != nil {
		errs = append(errs, d.volume.Close())
	}
	return errors.Join(errs...)
}
