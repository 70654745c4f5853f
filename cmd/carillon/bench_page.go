package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// A pendingFile is a file that appears under its name when it is complete.
type pendingFile struct {
	path string
	file *os.File // nil once finished or abandoned
}

// beginFile makes the file beside its place, so that a path that can't be written is refused at
// once.
func beginFile(path string) (*pendingFile, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, err
	}
	return &pendingFile{path: path, file: file}, nil
}

// finish writes the file and gives it its name.
func (p *pendingFile) finish(write func(io.Writer) error) error {
	file := p.file
	err := errors.Join(write(file), file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), p.path)
	}
	p.file = nil
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", p.path, err), os.Remove(file.Name()))
	}
	return nil
}

// abandon removes a file that was not finished.
func (p *pendingFile) abandon() {
	if p.file != nil {
		_ = p.file.Close()
		_ = os.Remove(p.file.Name())
		p.file = nil
	}
}
