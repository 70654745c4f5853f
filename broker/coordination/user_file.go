package coordination

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/carillon-mq/carillon/broker/identity"
)

// usersFile is the file of the last UserSet on a broker's volume.
const usersFile = "users.json"

// UsersDir is the data directory of a broker, which keeps the last UserSet in a file that only its
// owner may read.
type UsersDir string

type usersFileValue struct {
	V          int               `json:"v"`
	Generation int64             `json:"generation"`
	Document   identity.Document `json:"document"`
}

const usersFileVersion = 1

// Load returns the set that was saved last; nil: none.
func (d UsersDir) Load() (*UserSet, error) {
	path := filepath.Join(string(d), usersFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the last users: %w", err)
	}
	var value usersFileValue
	if err := decodeValue(path, data, usersFileVersion, &value, &value.V); err != nil {
		return nil, err
	}
	return &UserSet{Document: value.Document, Generation: value.Generation}, nil
}

// Save replaces the file. After a crash it has the set before or this one. A nil set removes it.
func (d UsersDir) Save(s *UserSet) error {
	if s == nil {
		err := os.Remove(filepath.Join(string(d), usersFile))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	data, err := json.Marshal(usersFileValue{usersFileVersion, s.Generation, s.Document})
	if err != nil {
		return fmt.Errorf("save the users: %w", err)
	}
	if err := writeDurably(string(d), usersFile, append(data, '\n')); err != nil {
		return fmt.Errorf("save the users: %w", err)
	}
	return nil
}
