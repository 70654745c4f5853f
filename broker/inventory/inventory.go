package inventory

import (
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/log"
)

// Inventory has the names of the logs on a disk. All methods may be called concurrently.
type Inventory struct {
	disk   *log.Disk
	logger *slog.Logger
	found  []string // at the start; Settle's
	moved  atomic.Uint64

	mu    sync.Mutex
	names map[string]bool
}

// New lists the logs on a disk.
func New(disk *log.Disk, logger *slog.Logger) (*Inventory, error) {
	found, err := disk.Names()
	if err != nil {
		return nil, err
	}
	i := &Inventory{disk: disk, logger: logger, found: found, names: map[string]bool{}}
	for _, name := range found {
		i.names[name] = true
	}
	return i, nil
}

// Note reports whether a log was on the disk, and notes that it is.
func (i *Inventory) Note(name string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.names[name]
	i.names[name] = true
	return known
}

// Has reports whether a log is on the disk.
func (i *Inventory) Has(name string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.names[name]
}

// Gone notes that a log is not on the disk.
func (i *Inventory) Gone(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.names, name)
}

// SetAside returns how many logs were set aside.
func (i *Inventory) SetAside() uint64 { return i.moved.Load() }

// MoveAside sets the closed logs of a shard aside, for a reason. A log that is not there is none.
func (i *Inventory) MoveAside(ids []log.Identity, shard, reason string) error {
	for _, id := range ids {
		if err := i.moveAside(id.Name(), reason, "topic", shard); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// moveAside sets a closed log aside, for a reason, and logs that.
func (i *Inventory) moveAside(name, reason string, args ...any) error {
	to, err := i.disk.SetAside(name, reason)
	if err == nil {
		i.moved.Add(1)
		i.logger.Warn(reason+"; delete it if nobody misses it (see: carillon brokers set-aside list)", append(args, "log", name, "to", to)...)
	}
	return err
}
