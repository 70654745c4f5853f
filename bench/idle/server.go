package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// A server is the processes of one server or cluster.
type server struct {
	name, urls   string
	pids         []int
	empty, began reading
	making       time.Duration // of all consumers
	rounds       []round
}

// A reading is what all processes of a server have used until now.
type reading struct {
	at     time.Time
	cpu    time.Duration
	memory int64 // bytes, resident, and of no file
}

// A round is what happened between two readings.
type round struct {
	memory int64   // bytes, at its end
	share  float64 // of one core
}

func (r reading) since(began reading) round {
	return round{memory: r.memory, share: float64(r.cpu-began.cpu) / float64(r.at.Sub(began.at))}
}

// clockTick is the unit of processor times in /proc, the same on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

func (s *server) usage() (reading, error) {
	r := reading{at: time.Now()}
	for _, pid := range s.pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return r, err
		}
		// The command's name may have spaces. Behind it, utime is the 12th field, stime the 13th.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 13 {
			return r, errors.New("the stat file of a process is not as expected")
		}
		user, _ := strconv.ParseInt(string(fields[11]), 10, 64)
		system, _ := strconv.ParseInt(string(fields[12]), 10, 64)
		r.cpu += time.Duration(user+system) * clockTick
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return r, err
		}
		for line := range bytes.Lines(status) {
			if text, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
				kib, err := strconv.ParseInt(string(bytes.Fields(text)[0]), 10, 64)
				if err != nil {
					return r, err
				}
				r.memory += kib << 10
			}
		}
	}
	return r, nil
}
