package export

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Valid returns an error unless the name has the extension of Parquet.
func Valid(name string) error {
	if filepath.Ext(name) != ".parquet" {
		return fmt.Errorf("%q: files are written as Parquet only, so end the name with .parquet", name)
	}
	return nil
}

// File is a table that is being written. Finish or Abort ends it. One goroutine uses it at a time.
type File struct {
	name  string
	file  *os.File
	out   *parquetEncoder
	rows  int // buffered by out
	bytes int // of these rows
	total int
}

// create begins a file.
func create(name string, columns []column) (*File, error) {
	if err := Valid(name); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.tmp")
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	return &File{name: name, file: file, out: newParquetEncoder(file, columns)}, nil
}

func (f *File) failed(err error) error { return fmt.Errorf("write %s: %w", f.name, err) }

// Rows returns how many rows were added.
func (f *File) Rows() int { return f.total }

// add adds a row of so many bytes, and writes a row group when it is full.
func (f *File) add(row []any, bytes int) error {
	if err := f.out.add(row); err != nil {
		return f.failed(err)
	}
	f.total++
	f.rows++
	if f.bytes += bytes; f.rows < maxRows && f.bytes < maxBytes {
		return nil
	}
	if err := f.flush(); err != nil {
		return f.failed(err)
	}
	return nil
}

func (f *File) flush() error {
	if f.rows == 0 {
		return nil
	}
	f.rows, f.bytes = 0, 0
	return f.out.flush()
}

// Finish writes what is left, and gives the file its name: one that had it is replaced.
func (f *File) Finish() error {
	err := f.flush()
	if err == nil {
		err = f.out.close()
	}
	if err == nil {
		err = errors.Join(f.file.Chmod(0o644), f.file.Sync())
	}
	if err == nil {
		err = os.Rename(f.file.Name(), f.name)
	}
	if err != nil {
		return errors.Join(f.failed(err), f.Abort())
	}
	return f.file.Close()
}

// Abort removes what was written.
func (f *File) Abort() error {
	return errors.Join(f.file.Close(), os.Remove(f.file.Name()))
}
