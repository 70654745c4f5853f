package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
)

const (
	// retryPause is the pause between attempts to start. Half of it is random, so that members that
	// failed together don't retry together.
	retryPause = 2 * time.Second
	// removedAsks is how often a member whose etcd has ended asks whether it was removed.
	removedAsks = 5
	// promotePause is the pause between attempts to be promoted while data are copied.
	promotePause = 500 * time.Millisecond
	// transferTimeout bounds the transfer of leadership before a stop. Raft gives it up after an
	// election timeout, as it does where no other member answers.
	transferTimeout = 2 * electionMillis * time.Millisecond
	// stopTimeout bounds a stop: the transfer, 5 s of etcd's for writes to members that don't read,
	// 8 s of its for connections without a request, 1 s for those of members, and the disk. What a
	// member has acknowledged is on its disk before, so the process may end then. A pod has 60 s.
	stopTimeout = 30 * time.Second
)

// Run runs one member until ctx ends. While it can't start it retries, and reports that in its log
// and its health. An error means that retrying in this process is useless.
func Run(ctx context.Context, config Config) error {
	p, err := config.parse()
	if err != nil {
		return err
	}
	if p.Logger == nil {
		p.Logger = slog.New(slog.DiscardHandler)
	}
	tls, err := env.LoadTLS(p.TLSDir)
	if err != nil {
		return err
	}
	peerTLS, err := env.LoadTLS(p.PeerTLSDir)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, env.LockWait)
	volume, err := openVolume(wait, p.DataDir)
	cancel()
	if err != nil {
		return err
	}
	defer volume.Close()

	m := &member{parsed: p, tls: tls, peerTLS: peerTLS, volume: volume, log: p.Logger.With("coordinator", p.Name)}
	m.waits.Store(new("it is starting"))
	stopHTTP, err := m.serveHTTP(p.HTTPListen)
	if err != nil {
		return err
	}
	defer stopHTTP()
	for {
		err := m.life(ctx)
		if !errors.Is(err, errRemoved) {
			return err
		}
		m.log.Error("the other members have removed this one; its data are set aside and it rejoins", "aside", asideDir)
		if err := volume.setAside(); err != nil {
			return err
		}
	}
}

// member is this process's member of the cluster.
type member struct {
	*parsed
	tls     *env.TLS // as a client of the other members
	peerTLS *env.TLS // as one of them
	volume  *volume
	log     *slog.Logger

	running atomic.Pointer[server] // nil: not begun
	waits   atomic.Pointer[string] // what it waits for, before it has begun
}

// errRemoved means that the cluster has removed this member, so its data are useless.
var errRemoved = errors.New("the other members have removed this one")

// life starts one etcd server and waits for its end.
func (m *member) life(ctx context.Context) error {
	s, err := m.begin(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	m.running.Store(s)
	defer m.running.Store(nil)
	m.log.Info("the member is up", "id", s.etcd.Server.MemberID().String())

	promoting, stopPromoting := context.WithCancel(ctx)
	var promoter sync.WaitGroup
	promoter.Go(func() { m.promote(promoting, s) })
	defer promoter.Wait()
	defer stopPromoting()

	select {
	case <-ctx.Done():
		m.log.Info("stopping")
		return s.stop()
	case <-s.etcd.Server.StopNotify():
		err = errors.New("etcd stopped by itself; its log says why")
	case err = <-s.etcd.Err():
		err = fmt.Errorf("etcd stopped serving: %w", err)
	}
	id := uint64(s.etcd.Server.MemberID())
	if stopErr := s.stop(); stopErr != nil {
		return errors.Join(err, stopErr)
	}
	if m.removed(ctx, id) {
		return errRemoved
	}
	return err
}

// removed reports whether a working cluster lists no member of this id. It asks more than once,
// since this member may know of its removal before the others.
func (m *member) removed(ctx context.Context, id uint64) bool {
	for range removedAsks {
		lists, _ := ask(ctx, m.others(), m.peerTLS.Client(""))
		if unlisted(lists, id) {
			return true
		}
		timer := time.NewTimer(retryPause / 2)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
	return false
}

func unlisted(lists [][]listedMember, id uint64) bool {
	for _, list := range lists {
		up, listed := false, false
		for _, other := range list {
			up = up || other.started()
			listed = listed || other.ID == id
		}
		if up && !listed {
			return true
		}
	}
	return false
}

// begin starts etcd in the way that is due, and retries until it succeeds.
func (m *member) begin(ctx context.Context) (*server, error) {
	for {
		s, err := m.tryBegin(ctx)
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		m.waits.Store(new(err.Error()))
		m.log.Warn("can't begin yet; trying again", "error", err)
		timer := time.NewTimer(retryPause/2 + rand.N(retryPause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

func (m *member) tryBegin(ctx context.Context) (*server, error) {
	has, err := m.volume.hasMember()
	if err != nil {
		return nil, err
	}
	if has {
		return m.start(m.InitialCluster, false)
	}
	// A first start that did not come to its end may have left files.
	if err := m.volume.setAside(); err != nil {
		return nil, err
	}
	existed, err := m.hasExisted()
	if err != nil {
		return nil, err
	}
	if len(m.peers) == 1 {
		if existed {
			return nil, fmt.Errorf("the only coordinator's volume %s is empty, though the cluster has existed: what it held is lost unless the volume is restored "+
				"(to begin anew with nothing, remove what %s holds)", m.DataDir, m.BootstrappedFile)
		}
		return m.start(m.InitialCluster, false)
	}
	lists, askErr := ask(ctx, m.others(), m.peerTLS.Client(""))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	way, why := decide(m.Name, m.peerURL, existed, lists)
	switch way {
	case form:
		m.log.Info("forming the cluster", "members", m.InitialCluster, "because", why)
		return m.start(m.InitialCluster, false)
	case rejoin:
		m.log.Warn("rejoining the cluster", "because", why)
		return m.rejoin(ctx, lists)
	default:
		return nil, fmt.Errorf("%s: %w", why, askErr)
	}
}

// hasExisted reports whether the operator has recorded that the cluster has existed.
func (m *member) hasExisted() (bool, error) {
	if m.BootstrappedFile == "" {
		return false, nil
	}
	data, err := os.ReadFile(m.BootstrappedFile)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read whether the cluster has existed: %w", err)
	}
	return len(bytes.TrimSpace(data)) > 0, nil
}

func (m *member) rejoin(ctx context.Context, lists [][]listedMember) (*server, error) {
	quorum, err := coordination.OpenCoordinators(clientURLs(lists, m.Name, m.peerURL), m.tls)
	if err != nil {
		return nil, fmt.Errorf("rejoin: %w", err)
	}
	defer quorum.Close()
	cluster, err := readmit(ctx, quorum, m.Name, m.peerURL)
	if err != nil {
		return nil, fmt.Errorf("rejoin: %w", err)
	}
	m.log.Info("added as a learner", "members", cluster)
	return m.start(cluster, true)
}

// promote promotes a learner once it has caught up. It runs after every start, since an earlier
// process may have died before.
func (m *member) promote(ctx context.Context, s *server) {
	select {
	case <-s.etcd.Server.ReadyNotify():
	case <-ctx.Done():
		return
	}
	for said := ""; s.etcd.Server.IsLearner(); {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		err := m.askForPromotion(asking, s.etcd.Server)
		cancel()
		switch {
		case err == nil:
			m.log.Info("promoted: this member votes")
		case ctx.Err() == nil && err.Error() != said:
			said = err.Error()
			m.log.Info("not promoted yet", "error", err)
		}
		timer := time.NewTimer(promotePause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// askForPromotion asks the leader, as its client: only it knows whether the learner has caught up.
// PromoteMember of this process would forward the request without saying who asks, which etcd
// refuses once it has users.
func (m *member) askForPromotion(ctx context.Context, learner *etcdserver.EtcdServer) error {
	leader := learner.Cluster().Member(learner.Leader())
	if leader == nil {
		return errors.New("no leader is known yet")
	}
	client, err := coordination.OpenCoordinators(leader.ClientURLs, m.tls)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.PromoteMember(ctx, uint64(learner.MemberID()))
}

// server is a running etcd.
type server struct {
	etcd    *embed.Etcd
	closing atomic.Bool // from then on its log is about the intended end

	stopUpkeep context.CancelFunc
	upkeep     sync.WaitGroup

	clients clients
}

func (m *member) start(cluster string, existing bool) (*server, error) {
	cfg, err := m.etcd(cluster, existing)
	if err != nil {
		return nil, err
	}
	return startServer(cfg, slogCore{log: m.log})
}

func startServer(cfg *embed.Config, log slogCore) (*server, error) {
	s := &server{}
	log.closing = &s.closing
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(log))
	cfg.ServiceRegister = s.clients.register
	cfg.GRPCAdditionalServerOptions = append(cfg.GRPCAdditionalServerOptions, grpc.StatsHandler(&s.clients))
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", cfg.Dir, err)
	}
	s.etcd = etcd
	u := &upkeep{etcd: etcd.Server, log: log.log, quota: cfg.QuotaBackendBytes, kept: keptUnderPressure}
	var ctx context.Context
	ctx, s.stopUpkeep = context.WithCancel(context.Background())
	s.upkeep.Go(func() { u.run(ctx) })
	return s, nil
}

// stop transfers the leadership, closes the connections of clients, and closes etcd, within
// stopTimeout. etcd's own stop waits up to 9 s for watches to end. In that time it neither renews
// leases nor tells clients to leave, so leases of live brokers would expire.
func (s *server) stop() error {
	s.stopUpkeep()
	done := make(chan struct{})
	go func() {
		defer close(done)
		transferred := s.transfer()
		s.closing.Store(true)
		s.clients.close()
		// Close waits for requests that wait for a leader, which fail only when the server is
		// stopped.
		s.etcd.Server.HardStop()
		<-transferred
		s.upkeep.Wait() // what it asked for ends with the server, and it uses the database
		s.etcd.Close()
	}()
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return fmt.Errorf("etcd did not stop within %v", stopTimeout)
	}
}

// transfer hands the leadership over, if this member leads, and waits for that up to
// transferTimeout. etcd's attempt goes on until ended is closed: it ends with the server.
func (s *server) transfer() (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.etcd.Server.TryTransferLeadershipOnShutdown() // etcd logs errors; others elect
	}()
	timer := time.NewTimer(transferTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	return done
}
