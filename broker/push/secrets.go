package push

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
)

// secrets reads the values that requests need, from files that the operator keeps. A file is read
// again when it has changed. None of it is in etcd or in a log.
type secrets struct {
	dir string // empty: there are none

	mu    sync.Mutex
	known map[string]secret // at most knownSecrets
}

type secret struct {
	changed time.Time
	size    int64
	value   []byte
}

// MissingError says that a value is not there, or not usable.
type MissingError struct{ What, Why string }

func (e *MissingError) Error() string { return e.What + " " + e.Why }

// read returns the content of a file and when it was changed.
func (s *secrets) read(what, file string) (secret, error) {
	name, key, _ := strings.Cut(file, "_")
	if s.dir == "" {
		return secret{}, &MissingError{what, "is in a Secret, and this broker has no folder of secrets (start it with --push-secrets)"}
	}
	path := filepath.Join(s.dir, filepath.Base(file))
	about, err := os.Stat(path)
	if os.IsNotExist(err) {
		return secret{}, &MissingError{what, fmt.Sprintf("is not there: Secret %s needs the key %s and the label carillon.dev/push: \"true\"; brokers see a change within two minutes", name, key)}
	}
	if err != nil {
		return secret{}, &MissingError{what, "can't be read: " + err.Error()}
	}
	if about.Size() > secretBytes {
		return secret{}, tooLarge(what, about.Size())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.known[file]; ok && found.changed.Equal(about.ModTime()) && found.size == about.Size() {
		return found, nil
	}
	value, about, err := env.ReadFile(path, secretBytes+1)
	if err != nil {
		return secret{}, &MissingError{what, "can't be read: " + err.Error()}
	}
	if len(value) > secretBytes {
		return secret{}, tooLarge(what, about.Size())
	}
	if s.known == nil || len(s.known) >= knownSecrets {
		s.known = map[string]secret{}
	}
	s.known[file] = secret{about.ModTime(), about.Size(), value}
	return s.known[file], nil
}

func tooLarge(what string, size int64) error {
	return &MissingError{what, fmt.Sprintf("has %d bytes: use at most %d", size, secretBytes)}
}

// header returns the value of a header, without the end of line that files tend to have.
func (s *secrets) header(name, file string) (string, error) {
	what := "the value of header " + name
	found, err := s.read(what, file)
	if err != nil {
		return "", err
	}
	value := strings.TrimRight(string(found.value), "\r\n")
	if value == "" || len(value) > headerBytes || !validValue(value) {
		return "", &MissingError{what, fmt.Sprintf("is not a line of 1 to %d bytes of printable ASCII: encode it", headerBytes)}
	}
	return value, nil
}
