package log

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What was set aside is in directories below set-aside, the pieces. A piece is a whole log, or some
// segments of one, or the torn tails of one. No log reads it again.

// PieceKind says what a piece is.
type PieceKind string

// The kinds of pieces.
const (
	PieceLog      PieceKind = "log"      // a whole log
	PieceSegments PieceKind = "segments" // segments of a log
	PieceTorn     PieceKind = "torn"     // torn tails that opening a log cut: never synced
)

// Piece is something that was set aside.
type Piece struct {
	Name string // of its directory below set-aside
	Kind PieceKind
	Log  Identity // the log that it is of
	Spec []byte   // of a whole log: what its owner kept beside it; nil: it can't be read
	// Reason is why it was set aside; empty: that is not known.
	Reason string
	// From and Next bound the offsets of its records; 0: unknown. A whole log may go beyond Next.
	From, Next uint64
	Bytes      int64 // of its files
	// Since is when a file came into its directory last, by the machine's clock; zero: unknown.
	Since time.Time
}

const (
	// noteName is the file in a piece that says why it was set aside. Making it also sets the
	// directory's time of modification, which the rename of a whole log keeps.
	noteName = "set-aside.json"
	// largestNote bounds a note that is read.
	largestNote = 4 << 10
	// usageAge is how old a measurement of all pieces may be: metrics are read every few seconds,
	// and there may be thousands of pieces.
	usageAge = time.Minute
	// asidePrefix begins the names of pieces in deletedDir. No log's name begins with it, since
	// Topic ids have no dots.
	asidePrefix = "aside."
)

// note is the content of noteName.
type note struct {
	Reason string `json:"reason"`
	From   uint64 `json:"from,omitempty"`
	Next   uint64 `json:"next,omitempty"`
}

// Errors of DeleteAside.
var (
	// ErrPieceBusy means that files are being moved to the piece.
	ErrPieceBusy = errors.New("its log is being opened, or still has files to move there (try again in a moment; if that does not help, restart the broker)")
	// ErrPieceChanged means that it is not the piece that the caller saw.
	ErrPieceChanged = errors.New("files were moved there since it was listed (list it again)")
)

func (d *Disk) asideDir(piece string) string { return filepath.Join(d.dir, setAsideDir, piece) }

// SetAside moves a closed log to the set-aside directory, instead of deleting it, and returns its
// path there. It leaves a note with the reason. The caller logs it.
func (d *Disk) SetAside(name, reason string) (string, error) {
	to, err := d.moveLogAside(name)
	if to != "" {
		d.leaveNote(to, note{Reason: reason})
	}
	return to, d.noticed(err)
}

// moveLogAside is SetAside without the note. If it moved the log, it returns where to, also with an
// error.
func (d *Disk) moveLogAside(name string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logs[name] != nil {
		return "", fmt.Errorf("log %s is open; close it before it is set aside", name)
	}
	to, err := d.freeAside(name)
	if err != nil {
		return "", err
	}
	if err := d.fs.Rename(d.logDir(name), to); err != nil {
		return "", err
	}
	d.forgetChecks(name)
	for _, dir := range []string{setAsideDir, shardsDir} {
		if err := d.fs.SyncDir(filepath.Join(d.dir, dir)); err != nil {
			return to, &syncError{err}
		}
	}
	return to, nil
}

// freeAside returns an unused path in the set-aside directory for a log. mu is held.
func (d *Disk) freeAside(name string) (string, error) {
	for n := 1; ; n++ {
		to := d.asideDir(fmt.Sprintf("%s.%d", name, n))
		if _, err := d.fs.Stat(to); errors.Is(err, fs.ErrNotExist) {
			return to, nil
		} else if err != nil {
			return "", err
		}
	}
}

// beginAside makes the directory for a part of the log that is to be set aside. It returns a with
// that directory.
func (l *Log) beginAside(a Aside) (*Aside, error) {
	dir, err := l.disk.makeAside(l.name)
	if err != nil {
		return nil, err
	}
	l.disk.leaveNote(dir, note{a.Reason, a.From, a.Next})
	a.Dir = filepath.Base(dir)
	return &a, nil
}

// makeAside creates a directory for parts of a log that are to be set aside.
func (d *Disk) makeAside(name string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	to, err := d.freeAside(name)
	if err != nil {
		return "", err
	}
	return to, d.makeDirAside(to)
}

func (d *Disk) makeDirAside(dir string) error {
	if err := d.fs.MkdirAll(dir); err != nil {
		return err
	}
	if err := d.fs.SyncDir(d.asideDir("")); err != nil {
		return &syncError{err}
	}
	return nil
}

// leaveNote writes a note to a piece. It is a hint: on a full disk there is none, and it isn't
// synced.
func (d *Disk) leaveNote(dir string, n note) {
	data, err := json.Marshal(n)
	if err != nil {
		return
	}
	f, err := d.createAnew(filepath.Join(dir, noteName))
	if err != nil {
		return
	}
	_, _ = f.WriteAt(data, 0)
	_ = f.Close()
}

// readNote returns the note of a piece; zero: there is none that can be read.
func (d *Disk) readNote(piece string) (n note) {
	f, err := d.fs.Open(filepath.Join(d.asideDir(piece), noteName))
	if err != nil {
		return n
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	data := make([]byte, min(size, largestNote))
	if err != nil || readFull(f, data, 0) != nil || json.Unmarshal(data, &n) != nil {
		return note{}
	}
	return n
}

// pieceOf returns the name of the log that a piece is of; false: no broker gives that name to a
// piece.
func pieceOf(piece string) (of string, ok bool) {
	of, torn := strings.CutSuffix(piece, tornDir)
	if !torn {
		at := strings.LastIndexByte(piece, '.')
		if at < 0 {
			return "", false
		}
		n, err := strconv.Atoi(piece[at+1:])
		if err != nil || n <= 0 || strconv.Itoa(n) != piece[at+1:] {
			return "", false
		}
		of = piece[:at]
	}
	_, ok = ParseName(of)
	return of, ok && filepath.Base(piece) == piece
}

// Pieces returns up to limit pieces whose names follow after, sorted by name, and whether there are
// more. It ignores what no broker put there.
func (d *Disk) Pieces(after string, limit int) (pieces []Piece, more bool, err error) {
	names, err := d.fs.List(d.asideDir(""))
	if err != nil {
		return nil, false, err
	}
	at, there := slices.BinarySearch(names, after)
	if there {
		at++
	}
	for _, name := range names[at:] {
		p, ok, err := d.piece(name)
		switch {
		case err != nil:
			return nil, false, err
		case !ok:
		case len(pieces) == limit:
			return pieces, true, nil
		default:
			pieces = append(pieces, p)
		}
	}
	return pieces, false, nil
}

// piece describes one piece; false: there is none of that name.
func (d *Disk) piece(name string) (p Piece, ok bool, err error) {
	of, ok := pieceOf(name)
	if !ok {
		return p, false, nil
	}
	info, err := d.fs.Stat(d.asideDir(name))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Dir {
		return p, false, nil
	}
	if err != nil {
		return p, false, err
	}
	files, bytes, err := d.measure(name)
	if errors.Is(err, fs.ErrNotExist) {
		return p, false, nil // it was deleted meanwhile
	}
	if err != nil {
		return p, false, err
	}
	p = Piece{Name: name, Bytes: bytes, Since: info.Modified}
	p.Log, _ = ParseName(of)
	n := d.readNote(name)
	p.Reason, p.From, p.Next = n.Reason, n.From, n.Next
	switch {
	case strings.HasSuffix(name, tornDir):
		p.Kind = PieceTorn
	case slices.Contains(files, manifestName) || slices.Contains(files, metaName):
		p.Kind = PieceLog
		if stored, there := d.storedIn(d.asideDir(name), of); there && stored.Err == nil {
			p.Spec, p.From, p.Next = stored.Meta.Spec, stored.Meta.Start, stored.Meta.Durable
		}
	default:
		p.Kind = PieceSegments
	}
	for _, file := range files {
		if r, ok := segmentFile(file); ok {
			if p.From == 0 {
				p.From = r.Base // files are sorted
			}
			p.Next = max(p.Next, r.Base)
		}
	}
	return p, true, nil
}

// measure returns the files of a piece, sorted, and their bytes.
func (d *Disk) measure(piece string) (files []string, bytes int64, err error) {
	files, err = d.fs.List(d.asideDir(piece))
	for _, file := range files {
		info, statErr := d.fs.Stat(filepath.Join(d.asideDir(piece), file))
		if statErr == nil { // or it was deleted meanwhile
			bytes += info.Size
		}
	}
	return files, bytes, err
}

// DeleteAside deletes a piece for good. If since is not zero, it must be the piece's. The error is
// an fs.ErrNotExist, an ErrPieceBusy or an ErrPieceChanged.
//
//  1. A piece is deleted only while nothing can be moved to it: its log is closed, or open and not
//     changing its files.
//  2. It is renamed to deletedDir in one step, which is durable before any of its files is removed.
//     After a crash it is there as a whole, or OpenDisk removes what is left.
//  3. A log's manifest may go on naming it: that is for people only.
func (d *Disk) DeleteAside(piece string, since time.Time) error {
	of, ok := pieceOf(piece)
	if !ok {
		return fmt.Errorf("%.300q names nothing that was set aside: %w", piece, fs.ErrNotExist)
	}
	d.deletingAside.Lock()
	defer d.deletingAside.Unlock()
	err := d.discard(asidePrefix+piece, setAsideDir, func(to string) error { return d.takeOut(piece, of, since, to) })
	if err != nil {
		return fmt.Errorf("delete %s: %w", piece, d.noticed(err))
	}
	return nil
}

// takeOut renames a piece of a log to a path.
func (d *Disk) takeOut(piece, of string, since time.Time, to string) error {
	d.mu.Lock()
	l := d.logs[of]
	opening := l != nil && !l.opened // it moves and adds files, and may have no manifest yet
	d.mu.Unlock()
	if opening {
		return ErrPieceBusy
	}
	if l != nil {
		l.admin.Lock()
		defer l.admin.Unlock()
		if m := l.man.now.Load(); m != nil && slices.ContainsFunc(m.Aside, func(a Aside) bool { return a.Dir == piece && len(a.Files) > 0 }) {
			return ErrPieceBusy
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.failed != nil:
		return d.failed
	case d.closing:
		return errors.New("the disk is closed")
	case d.logs[of] != l: // it is being opened now
		return ErrPieceBusy
	}
	info, err := d.fs.Stat(d.asideDir(piece))
	if err != nil {
		return err
	}
	if !since.IsZero() && !since.Equal(info.Modified) {
		return ErrPieceChanged
	}
	return d.fs.Rename(d.asideDir(piece), to)
}

// asideUsage is a measurement of all pieces.
type asideUsage struct {
	mu     sync.Mutex
	at     time.Time // of the measurement; zero: there was none
	pieces int
	bytes  int64
}

// AsideUsage returns how many pieces there are, and the bytes of their files, as of a minute ago at
// most.
func (d *Disk) AsideUsage() (pieces int, bytes int64, err error) {
	u := &d.asideUsage
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.at.IsZero() && time.Since(u.at) < usageAge {
		return u.pieces, u.bytes, nil
	}
	names, err := d.fs.List(d.asideDir(""))
	if err != nil {
		return 0, 0, err
	}
	for _, name := range names {
		if _, ok := pieceOf(name); ok {
			_, of, _ := d.measure(name) // it may be deleted meanwhile
			pieces, bytes = pieces+1, bytes+of
		}
	}
	u.at, u.pieces, u.bytes = time.Now(), pieces, bytes
	return pieces, bytes, nil
}
