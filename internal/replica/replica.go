// Package replica tells how far a primary's standbys are behind, as the primary sees it.
//
// Only standbys that are connected count: no application reads from one that is gone, and a replication slot that it left behind may
// stay for ever. Subscribers of logical replication do not count either: one that has nothing to apply confirms
// nothing, and looks further behind with every byte that is written to other databases.
package replica

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrHidden says that there are standbys whose state the role may not see. It needs pg_read_all_stats, which pg_monitor has.
var ErrHidden = errors.New("the role may not see how far replicas are behind: GRANT pg_read_all_stats to it")

// Replica is one connected standby.
type Replica struct {
	// Name is its application_name, with its address where that alone would not tell it from others.
	Name string
	// Lag is the time between the commit of what it replayed last and its replay there, 0 where it is idle.
	Lag time.Duration
	// Bytes of the write-ahead log that it has not replayed yet.
	Bytes int64
}

// Limits say how far a standby may be behind; 0 is no limit.
type Limits struct {
	Lag   time.Duration
	Bytes int64
}

// On reports whether there is any limit.
func (l Limits) On() bool { return l.Lag > 0 || l.Bytes > 0 }

// Worst returns the standby that is furthest beyond the limits, in time before bytes, and false where none is.
func (l Limits) Worst(replicas []Replica) (Replica, bool) {
	var worst Replica
	found := false
	for _, r := range replicas {
		if !l.late(r) && !l.long(r) {
			continue
		}
		if !found || l.worse(r, worst) {
			worst, found = r, true
		}
	}
	return worst, found
}

func (l Limits) worse(r, than Replica) bool {
	switch {
	case l.late(r) != l.late(than):
		return l.late(r)
	case l.late(r):
		return r.Lag > than.Lag
	default:
		return r.Bytes > than.Bytes
	}
}

func (l Limits) late(r Replica) bool { return l.Lag > 0 && r.Lag > l.Lag }

func (l Limits) long(r Replica) bool { return l.Bytes > 0 && r.Bytes > l.Bytes }

// Describe words the lag of a standby beyond the limits: "replica r1 12 s behind" or "replica r1 300 MiB behind".
func (l Limits) Describe(r Replica) string {
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

//go:embed queries/read.sql
var readSQL string

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Read asks a primary for its standbys. The error is ErrHidden where there are some that the role may not see.
func Read(ctx context.Context, on querier) ([]Replica, error) {
	rows, _ := on.Query(ctx, readSQL)
	var found []sender
	var s sender
	_, err := pgx.ForEachRow(rows, []any{&s.hidden, &s.application, &s.address, &s.seconds, &s.bytes}, func() error {
		found = append(found, s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read state of replicas: %w", err)
	}
	replicas := make([]Replica, len(found))
	for i, s := range found {
		if s.hidden {
			return nil, ErrHidden
		}
		replicas[i] = Replica{Name: s.name(found), Lag: time.Duration(s.seconds * float64(time.Second)), Bytes: s.bytes}
	}
	return replicas, nil
}

type sender struct {
	hidden      bool
	application string
	address     string
	seconds     float64
	bytes       int64
}

// name is the application_name where that tells the sender from all others, and else has its address with it.
func (s sender) name(all []sender) string {
	// What standbys call themselves that have no cluster_name and no application_name in primary_conninfo.
	const anonymous = "walreceiver"
	alike := 0
	for _, other := range all {
		if other.application == s.application {
			alike++
		}
	}
	if alike == 1 && s.application != "" && s.application != anonymous || s.address == "" && s.application != "" {
		return s.application
	}
	return strings.TrimSpace(s.application + " at " + s.address)
}
