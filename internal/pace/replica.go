package pace

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/problem"
)

// ErrReplicasHidden reports that the role cannot see the state of standbys. The role
// needs pg_read_all_stats, which pg_monitor includes.
var ErrReplicasHidden = errors.New("the role cannot see the lag of replicas: GRANT pg_read_all_stats to it")

// Replica is a connected standby. Disconnected ones do not count: no application reads
// from them, and their replication slots may be kept forever. Subscribers of logical
// replication do not count either: without changes to apply, a subscriber confirms
// nothing, so its lag seems to grow with every byte that is written to other databases.
type Replica struct {
	// Name is the application_name of the standby, with the address if the name is not
	// unique.
	Name string
	// Lag is the replay lag, or 0 if the standby is idle.
	Lag time.Duration
	// Bytes is the amount of write-ahead log that the standby has not replayed yet.
	Bytes int64
}

// ReplicaLimits limits the lag of standbys. A limit of 0 is not checked.
type ReplicaLimits struct {
	Lag   time.Duration
	Bytes int64
}

// On reports whether a limit is set.
func (l ReplicaLimits) On() bool { return l.Lag > 0 || l.Bytes > 0 }

// Worst returns the standby that exceeds the limits most, or false if no standby exceeds
// them. A standby that exceeds the time limit counts as worse than all standbys that only
// exceed the limit in bytes.
func (l ReplicaLimits) Worst(replicas []Replica) (Replica, bool) {
	beyond := slices.DeleteFunc(slices.Clone(replicas),
		func(r Replica) bool { return !l.late(r) && (l.Bytes == 0 || r.Bytes <= l.Bytes) })
	if len(beyond) == 0 {
		return Replica{}, false
	}
	return slices.MaxFunc(beyond, func(a, b Replica) int {
		if l.late(a) || l.late(b) {
			return cmp.Compare(a.Lag, b.Lag)
		}
		return cmp.Compare(a.Bytes, b.Bytes)
	}), true
}

func (l ReplicaLimits) late(r Replica) bool { return l.Lag > 0 && r.Lag > l.Lag }

// Describe returns the lag of a standby that exceeds the limits as a phrase, such as
// "replica r1 12 s behind" or "replica r1 300 MiB behind".
func (l ReplicaLimits) Describe(r Replica) string {
	if l.late(r) {
		if r.Lag < time.Second {
			return fmt.Sprintf("replica %s %d ms behind", r.Name, r.Lag.Milliseconds())
		}
		return fmt.Sprintf("replica %s %d s behind", r.Name, int64(r.Lag.Seconds()))
	}
	return fmt.Sprintf("replica %s %s behind", r.Name, size(r.Bytes))
}

func size(bytes int64) string {
	const kib, mib = 1 << 10, 1 << 20
	switch {
	case bytes >= mib:
		return fmt.Sprintf("%d MiB", bytes/mib)
	case bytes >= kib:
		return fmt.Sprintf("%d KiB", bytes/kib)
	default:
		return fmt.Sprintf("%d bytes", bytes)
	}
}

//go:embed queries/replicas.sql
var replicasSQL string

// ReadReplicas returns the standbys of a primary. The error is ErrReplicasHidden if the
// role cannot see the state of one of them.
func ReadReplicas(ctx context.Context, on dbsqlc.DBTX) ([]Replica, error) {
	replicas := []Replica{}
	var hidden bool
	var seconds float64
	var r Replica
	rows, _ := on.Query(ctx, replicasSQL)
	_, err := pgx.ForEachRow(rows, []any{&hidden, &r.Name, &seconds, &r.Bytes}, func() error {
		if hidden {
			return ErrReplicasHidden
		}
		r.Lag = time.Duration(seconds * float64(time.Second))
		replicas = append(replicas, r)
		return nil
	})
	if errors.Is(err, ErrReplicasHidden) {
		return nil, ErrReplicasHidden
	}
	return replicas, problem.Doing(err, "read state of replicas")
}
