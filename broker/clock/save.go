package clock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// load reads what the last life of this broker saved. nil: nothing.
func load(path string) (*Saved, error) {
	if path == "" {
		return nil, nil
	}
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

// store replaces the file.
func store(path string, s Saved) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
