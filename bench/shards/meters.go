package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cluster is where its processes are found.
type cluster struct {
	dir, urls             string
	brokers, coordinators []string // HTTP addresses
}

var client = &http.Client{Timeout: 10 * time.Second}

// metrics are the samples that have no labels, and the sums of those that have.
func metrics(address string) (map[string]float64, error) {
	answer, err := client.Get("http://" + address + "/metrics")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	found := map[string]float64{}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if i := strings.LastIndex(lines.Text(), "} "); i >= 0 {
			name, value = lines.Text()[:strings.Index(lines.Text(), "{")], lines.Text()[i+2:]
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			found[name] += v
		}
	}
	return found, lines.Err()
}

// standing is how many shards are served, copied by followers, and short of replicas in sync.
type standing struct{ open, copying, short, troubled int }

// standing adds up what the brokers say; so many must answer.
func (c *cluster) standing(brokers int) (s standing, err error) {
	n := 0
	for _, address := range c.brokers {
		m, failed := metrics(address)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		n++
		s.open += int(m["carillon_shards_open"])
		s.copying += int(m["carillon_replica_shards_copying"])
		s.short += int(m["carillon_replica_shards_short"])
		s.troubled += int(m["carillon_shards_troubled"])
	}
	if n == brokers {
		return s, nil
	}
	return s, errors.Join(err, fmt.Errorf("%d of %d brokers answer", n, brokers))
}

func (c *cluster) led(broker int) int {
	m, _ := metrics(c.brokers[broker])
	return int(m["carillon_shards_open"])
}

func (c *cluster) pid(name string) (int, error) {
	text, err := os.ReadFile(filepath.Join(c.dir, name, "pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func (c *cluster) signal(name string) error {
	pid, err := c.pid(name)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// process is one of the cluster's, as the kernel and it itself see it.
type process struct {
	name, address   string
	rss, peak       int64 // bytes
	cpu             float64
	fds             int
	metrics         map[string]float64
	sent, received  float64 // bytes of its network, by its namespace
	files, occupied int64   // of its folder
	at              time.Time
}

func (c *cluster) process(name, address string) (p process) {
	p.name, p.address, p.at = name, address, time.Now()
	p.metrics, _ = metrics(address)
	pid, err := c.pid(name)
	if err != nil {
		return p
	}
	proc := fmt.Sprintf("/proc/%d/", pid)
	status, _ := os.ReadFile(proc + "status")
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			kb, _ := strconv.ParseInt(fields[1], 10, 64)
			switch fields[0] {
			case "VmRSS:":
				p.rss = kb << 10
			case "VmHWM:":
				p.peak = kb << 10
			}
		}
	}
	stat, _ := os.ReadFile(proc + "stat")
	if i := strings.LastIndexByte(string(stat), ')'); i > 0 {
		if fields := strings.Fields(string(stat[i+1:])); len(fields) > 12 {
			user, _ := strconv.ParseFloat(fields[11], 64)
			system, _ := strconv.ParseFloat(fields[12], 64)
			p.cpu = (user + system) / 100 // Linux counts for programs in hundredths
		}
	}
	open, _ := os.ReadDir(proc + "fd")
	p.fds = len(open)
	devices, _ := os.ReadFile(proc + "net/dev")
	for line := range strings.Lines(string(devices)) {
		if fields := strings.Fields(line); len(fields) > 9 && fields[0] == "eth0:" {
			p.received, _ = strconv.ParseFloat(fields[1], 64)
			p.sent, _ = strconv.ParseFloat(fields[9], 64)
		}
	}
	return p
}

func (c *cluster) meters() (all []process) {
	for i, address := range c.brokers {
		all = append(all, c.process(fmt.Sprintf("broker-%d", i), address))
	}
	for i, address := range c.coordinators {
		all = append(all, c.process(fmt.Sprintf("coordinator-%d", i), address))
	}
	return all
}

func (p *process) weigh(dir string) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it is being written to
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		p.files++
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			p.occupied += s.Blocks * 512
		}
		return nil
	})
}

const mib = 1 << 20

// footprint says what each process holds.
func (b *bench) footprint(when string) {
	b.say("FOOTPRINT, %s:", when)
	for _, p := range b.meters() {
		if p.rss == 0 {
			continue
		}
		p.weigh(filepath.Join(b.dir, p.name))
		line := fmt.Sprintf("  %-14s RSS %5d MiB (peak %5d), heap %4.0f MiB, %6.0f goroutines, %5d open files, %7d files on %6d MiB",
			p.name, p.rss/mib, p.peak/mib, p.metrics["go_memstats_heap_inuse_bytes"]/mib, p.metrics["go_goroutines"], p.fds, p.files, p.occupied/mib)
		if size := p.metrics["etcd_mvcc_db_total_size_in_bytes"]; size > 0 {
			line += fmt.Sprintf(", db %.1f MiB (%.1f in use)", size/mib, p.metrics["etcd_mvcc_db_total_size_in_use_in_bytes"]/mib)
		}
		b.say("%s", line)
	}
}

// rates says what each process did between the two times.
func (b *bench) rates(what string, before, after []process) {
	for i, p := range after {
		was := before[i]
		seconds := p.at.Sub(was.at).Seconds()
		per := func(name string) float64 { return (p.metrics[name] - was.metrics[name]) / seconds }
		line := fmt.Sprintf("%s: %-14s %5.1f %% of a core, %6.1f KiB/s sent, %6.1f KiB/s received", what, p.name,
			100*(p.cpu-was.cpu)/seconds, (p.sent-was.sent)/seconds/1024, (p.received-was.received)/seconds/1024)
		if strings.HasPrefix(p.name, "coordinator") {
			line += fmt.Sprintf(", %.2f puts/s, %.2f ranges/s, %.2f transactions/s, %.2f proposals/s", per("etcd_mvcc_put_total"), per("etcd_mvcc_range_total"),
				per("etcd_mvcc_txn_total"), per("etcd_server_proposals_committed_total"))
		} else {
			line += fmt.Sprintf(", %.1f syncs/s, %.1f MiB/s allocated", per("carillon_disk_syncs_total"), per("go_memstats_alloc_bytes_total")/mib)
		}
		b.say("%s", line)
	}
}
