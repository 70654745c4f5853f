package env

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// IrregularError says that a path leads to no regular file.
type IrregularError struct {
	Path string
	Mode os.FileMode
}

func (e *IrregularError) Error() string {
	kind := "a device"
	switch {
	case e.Mode.IsDir():
		kind = "a folder"
	case e.Mode&os.ModeNamedPipe != 0:
		kind = "a pipe"
	case e.Mode&os.ModeSocket != 0:
		kind = "a socket"
	}
	return fmt.Sprintf("%s is %s: give a regular file, or a link to one, since it is read again later", e.Path, kind)
}

// ReadFile returns the first limit bytes of a regular file, and what the file was when it was
// opened. It follows links. Anything but a regular file is an *IrregularError: opening or reading a
// pipe may wait for a writer without end.
func ReadFile(path string, limit int64) (content []byte, about os.FileInfo, err error) {
	// A device may do something when it is opened, and who writes to a pipe would see its reader go.
	if about, err = os.Stat(path); err == nil {
		err = regular(path, about)
	}
	if err != nil {
		return nil, nil, err
	}
	// The file may have been exchanged since. Without O_NONBLOCK a pipe waits in open.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if about, err = f.Stat(); err == nil {
		err = regular(path, about)
	}
	if err != nil {
		return nil, nil, err
	}
	if content, err = io.ReadAll(io.LimitReader(f, limit)); err != nil {
		return nil, nil, err
	}
	return content, about, nil
}

func regular(path string, about os.FileInfo) error {
	if mode := about.Mode(); !mode.IsRegular() {
		return &IrregularError{path, mode}
	}
	return nil
}
