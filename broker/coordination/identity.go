package coordination

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// identityFile is the file of a broker's identity on its volume.
const identityFile = "identity.json"

// Identity is a broker's identity for the lifetime of its volume.
type Identity struct {
	ID      string // random; independent of the pod's ordinal, which another volume may get
	Cluster string // namespace/name of the Broker
}

type identityValue struct {
	V       int    `json:"v"`
	ID      string `json:"id"`
	Cluster string `json:"cluster"`
}

const identityValueVersion = 1

// LoadIdentity reads the identity of the volume at dir, or creates a durable one. It refuses a
// volume of another cluster.
func LoadIdentity(dir, cluster string) (Identity, error) {
	if _, err := keyPrefix(cluster); err != nil {
		return Identity{}, err
	}
	path := filepath.Join(dir, identityFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return createIdentity(dir, cluster)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("read the broker's identity: %w", err)
	}
	var value identityValue
	if err := json.Unmarshal(data, &value); err != nil {
		return Identity{}, fmt.Errorf("read the broker's identity in %s: %w (restore the file, or give the broker an empty volume)", path, err)
	}
	if value.V != identityValueVersion {
		return Identity{}, fmt.Errorf("read the broker's identity in %s: version %d is unknown here (use the program that wrote it, or a newer one)", path, value.V)
	}
	if value.Cluster != cluster {
		return Identity{}, fmt.Errorf("the volume at %s belongs to broker %s of cluster %s, not to cluster %s (mount that cluster's volume elsewhere, or give this broker an empty one)",
			dir, value.ID, value.Cluster, cluster)
	}
	if err := (Broker{ID: value.ID, Client: ":0", Route: ":0", HTTP: ":0"}).valid(); err != nil {
		return Identity{}, fmt.Errorf("read the broker's identity in %s: %w", path, err)
	}
	return Identity{ID: value.ID, Cluster: value.Cluster}, nil
}

func createIdentity(dir, cluster string) (Identity, error) {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails, by its contract
	id := Identity{ID: hex.EncodeToString(random[:]), Cluster: cluster}
	data, err := json.Marshal(identityValue{identityValueVersion, id.ID, id.Cluster})
	if err != nil {
		return Identity{}, fmt.Errorf("make the broker's identity: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Identity{}, fmt.Errorf("make the broker's identity: %w (the data directory must be writable)", err)
	}
	if err := writeDurably(dir, identityFile, append(data, '\n')); err != nil {
		return Identity{}, fmt.Errorf("make the broker's identity: %w (the data directory must be writable)", err)
	}
	return id, nil
}

// writeDurably writes a file that after a crash exists completely or not at all.
func writeDurably(dir, name string, data []byte) error {
	temporary := filepath.Join(dir, name+".tmp")
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
