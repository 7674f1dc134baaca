package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/waterclock-io/waterclock/chaos/cluster"
	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/chaos/process"
)

// deployment is a cluster as a world.
type deployment struct {
	o       cluster.Options
	log     *os.File
	cluster *cluster.Cluster
	stopped bool
}

func newDeployment(o Options) (*deployment, error) {
	log, err := os.Create(filepath.Join(o.Dir, "faults.log"))
	if err != nil {
		return nil, fmt.Errorf("log of the faults: %w", err)
	}
	return &deployment{log: log, o: cluster.Options{
		Waterclock: o.Binary, Old: o.Old, NATSServer: o.NATSServer, Child: o.Child, Dir: o.Dir, Nodes: o.Nodes, AckWait: o.Lease, Heartbeat: o.Lease * 3 / 10, Margin: o.Lease / 5,
	}}, nil
}

func (d *deployment) start(ctx context.Context) (err error) {
	d.cluster, err = cluster.Start(ctx, d.o)
	return err
}

func (d *deployment) stop(ctx context.Context) error {
	d.stopped = true
	return d.cluster.Stop(ctx)
}

func (d *deployment) close() error {
	var err error
	if d.cluster != nil && !d.stopped { // else it has been told what came of it
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		err = d.stop(ctx)
	}
	return errors.Join(err, d.log.Close())
}

func (d *deployment) faults() []fault.Fault           { return d.cluster.Faults() }
func (d *deployment) unavailable() []string           { return d.cluster.Unavailable() }
func (d *deployment) apis() []string                  { return d.cluster.APIs() }
func (d *deployment) natsURL() string                 { return d.cluster.NATSURLs() }
func (d *deployment) keys() map[string]string         { return d.cluster.Keys() }
func (d *deployment) murders() int                    { return 2 }
func (d *deployment) storeURL() string                { return d.cluster.DSN() }
func (d *deployment) logs() []string                  { return d.cluster.LogFiles() }
func (d *deployment) note(format string, args ...any) { process.Note(d.log, format, args...) }

func (d *deployment) slots() map[string]int {
	all := d.cluster.Slots() // every executor serves both queues with the same slots
	return map[string]int{"default": all, "default/" + cluster.OwnQueue: all}
}
