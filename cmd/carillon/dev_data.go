package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
)

// devBrokerDir is the folder of a single broker's data. Those of a cluster have a number behind it.
const devBrokerDir = "broker"

// devOrphanWait is how long to wait for brokers of a killed command to end: the system kills them
// with it, which takes a moment.
const devOrphanWait = 5 * time.Second

func devClusterDir(data string, n int) string {
	return filepath.Join(data, devBrokerDir+"-"+strconv.Itoa(n))
}

// checkDevData refuses fewer brokers than before, since some data would not be served.
func checkDevData(data string, brokers int) error {
	had := 0
	for n := range maxDevBrokers {
		if isDir(devClusterDir(data, n)) {
			had = n + 1
		}
	}
	if brokers == 1 && had > 0 || had > brokers {
		return fmt.Errorf("%s is the data of %d brokers, and some of it would not be served (use --brokers %d, or another folder)", data, had, had)
	}
	return nil
}

// prepareDevData creates the folders of a cluster. Brokers of a killed command may still use them
// where the system does not kill those with it.
func prepareDevData(ctx context.Context, data string, brokers int) error {
	// A single broker becomes the first of the cluster, with its data.
	alone, first := filepath.Join(data, devBrokerDir), devClusterDir(data, 0)
	if isDir(alone) && !isDir(first) {
		if err := os.Rename(alone, first); err != nil {
			return fmt.Errorf("make the broker in %s one of several: %w", alone, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, devOrphanWait)
	defer cancel()
	for n := range brokers {
		dir := devClusterDir(data, n)
		lock, err := env.LockDir(ctx, dir)
		if err != nil {
			return err
		}
		if err := errors.Join(removePid(dir), lock.Close()); err != nil {
			return err
		}
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func pidFile(dir string) string { return filepath.Join(dir, "pid") }

// writePid writes the file completely or not at all.
func writePid(dir string, pid int) error {
	next := pidFile(dir) + ".new"
	if err := os.WriteFile(next, []byte(strconv.Itoa(pid)+"\n"), 0o644); err != nil {
		return fmt.Errorf("write the pid of a broker: %w", err)
	}
	if err := os.Rename(next, pidFile(dir)); err != nil {
		return fmt.Errorf("write the pid of a broker: %w", err)
	}
	return nil
}

func removePid(dir string) error {
	if err := os.Remove(pidFile(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the pid of a broker: %w", err)
	}
	return nil
}
