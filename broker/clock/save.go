package clock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Store saves a broker's vote.
type Store interface {
	// Load returns what was saved last, or nil.
	Load() (*Saved, error)
	Save(s Saved) error
}

// File is a Store in the file with this path.
type File string

// Load implements Store. It returns nil if there is no file.
func (f File) Load() (*Saved, error) {
	path := string(f)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &Saved{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if s.Time <= 0 || s.Mono < 0 {
		return nil, fmt.Errorf("%s: a time of %d at %d", path, s.Time, s.Mono)
	}
	return s, nil
}

// Save implements Store. It replaces the file by a rename. The new file is synced before, so that a
// power cut leaves one of them: without either, an arbitrary wall clock would be plausible.
func (f File) Save(s Saved) error {
	path := string(f)
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(data, '\n'))
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
