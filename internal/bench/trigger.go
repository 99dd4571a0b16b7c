package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"sexton/internal/latency"
)

// The states of the triggers that are compared; with and without the wake trigger, which notifies only where
// no worker is awake.
const (
	track       = "track"
	wakesAwake  = "track_and_wake_awake"
	wakesAsleep = "track_and_wake_asleep"
)

// triggerRounds are interleaved: a round measures every state.
const triggerRounds = 3

// TriggerReport is the cost of the triggers for one DELETE.
type TriggerReport struct {
	Benchmark string `json:"benchmark"`
	Server    Server `json:"server"`
	Rounds    int    `json:"rounds"`
	Costs     []Cost `json:"costs"`
}

// Cost is one cell of the comparison.
type Cost struct {
	Rows    int    `json:"rows"`
	Variant string `json:"variant"`
	// Statements were measured, MS is their median.
	Statements int     `json:"statements"`
	MS         float64 `json:"ms"`
	Ratio      float64 `json:"ratio_to_no_trigger"`
}

// Trigger measures autocommitted deletes of 1, 100, 10,000 and 1,000,000 rows by primary key, of at most most.
func Trigger(ctx context.Context, s *Site, most int) (Report, error) {
	r := &TriggerReport{Benchmark: "trigger", Rounds: triggerRounds}
	var err error
	if r.Server, err = s.server(ctx); err != nil {
		return nil, err
	}
	variants := []string{noTrigger, track, wakesAwake, wakesAsleep}
	for _, size := range []struct{ rows, statements int }{{1, 100}, {100, 34}, {10_000, 3}, {1_000_000, 1}} {
		if size.rows > most {
			break
		}
		took := map[string][]time.Duration{}
		for range triggerRounds {
			for _, variant := range variants {
				s.Progress("%d rows, %s", size.rows, variant)
				durations, err := s.deletes(ctx, variant, size.rows, size.statements)
				if err != nil {
					return nil, fmt.Errorf("measure %s with %d rows: %w", variant, size.rows, err)
				}
				took[variant] = append(took[variant], durations...)
			}
		}
		base := median(took[noTrigger])
		for _, variant := range variants {
			middle := median(took[variant])
			r.Costs = append(r.Costs, Cost{
				Rows: size.rows, Variant: variant, Statements: len(took[variant]),
				MS: latency.Milliseconds(middle), Ratio: ratio(float64(middle), float64(base)),
			})
		}
	}
	return r, nil
}

// deletes fills the table and returns how long each statement took that deletes so many rows of it.
func (s *Site) deletes(ctx context.Context, variant string, rows, statements int) ([]time.Duration, error) {
	table := "parents"
	if variant == noTrigger {
		table = "plain_parents"
	}
	last := rows*statements + 1
	if err := s.refill(ctx, table, int64(last)); err != nil {
		return nil, err
	}
	state := "DISABLE"
	if slices.Contains([]string{wakesAwake, wakesAsleep}, variant) {
		state = "ENABLE ALWAYS"
	}
	if err := s.exec(ctx, "switch trigger", "ALTER TABLE "+tombstones+" "+state+" TRIGGER sexton_wake"); err != nil {
		return nil, err
	}
	if variant == wakesAwake {
		release, err := s.holdAwake(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	conn, closeConn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer closeConn()
	remove := func(from, to int) (time.Duration, error) {
		began := time.Now()
		if _, err := conn.Exec(ctx, "DELETE FROM "+table+" WHERE id BETWEEN $1 AND $2", from, to); err != nil {
			return 0, fmt.Errorf("delete parents: %w", err)
		}
		return time.Since(began), nil
	}
	// The first one in a session loads functions and plans.
	if _, err := remove(last, last); err != nil {
		return nil, err
	}
	durations := make([]time.Duration, statements)
	for i := range statements {
		if durations[i], err = remove(i*rows+1, (i+1)*rows); err != nil {
			return nil, err
		}
	}
	return durations, nil
}

// Text writes a table.
func (r *TriggerReport) Text(w io.Writer) {
	_, _ = fmt.Fprintln(w, "rows\tvariant\tms\tratio to no trigger\tstatements")
	for _, c := range r.Costs {
		_, _ = fmt.Fprintf(w, "%d\t%s\t%.3f\t%.2f\t%d\n", c.Rows, strings.ReplaceAll(c.Variant, "_", " "), c.MS, c.Ratio, c.Statements)
	}
	_, _ = fmt.Fprintf(w, "\nmedian of all statements of %d interleaved rounds, one DELETE by primary key each; %s\n", r.Rounds, r.Server)
}
