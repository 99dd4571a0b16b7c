package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"sexton/internal/latency"
	"sexton/internal/problem"
)

const noTrigger = "no_trigger"

// triggerStates are compared; with and without the wake trigger, which notifies only where no worker is awake, and native foreign keys
// of empty child tables.
func triggerStates() []triggerState {
	return []triggerState{
		{name: noTrigger, plain: true},
		{name: "track"},
		{name: "track_and_wake_awake", wake: true, held: true},
		{name: "track_and_wake_asleep", wake: true},
		{name: nativeChild, children: 1},
		{name: "native_3_children", children: 3},
		{name: "native_8_children", children: 8},
	}
}

// nativeChild is the yardstick of the tracking trigger, whose cost is the same for any number of children.
const nativeChild = "native_1_child"

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
	// RatioNative is the ratio to one native foreign key whose child table is empty.
	RatioNative float64 `json:"ratio_to_native_1_child"`
}

// Trigger measures autocommitted deletes of 1, 100, 10,000 and 1,000,000 rows by primary key, of at most most.
func Trigger(ctx context.Context, s *Site, most int) (Report, error) {
	r := &TriggerReport{Benchmark: "trigger", Server: s.Server, Rounds: triggerRounds}
	for _, v := range triggerStates() {
		for n := range v.children {
			if err := s.exec(ctx, "create child table", fmt.Sprintf(`
				CREATE TABLE IF NOT EXISTS %[1]s (id bigint PRIMARY KEY, filler text);
				CREATE TABLE %[1]s_child_%[2]d (id bigint PRIMARY KEY, parent_id bigint REFERENCES %[1]s ON DELETE CASCADE);
				CREATE INDEX ON %[1]s_child_%[2]d (parent_id)`, v.table(), n)); err != nil {
				return nil, err
			}
		}
	}
	for _, size := range []struct{ rows, statements int }{{1, 100}, {100, 34}, {10_000, 3}, {1_000_000, 1}} {
		if size.rows > most {
			break
		}
		took := map[string][]time.Duration{}
		err := inTurn(triggerRounds, triggerStates(), func(_ int, v triggerState) error {
			s.Progress("%d rows, %s", size.rows, v.name)
			durations, err := s.deletes(ctx, v, size.rows, size.statements)
			if err != nil {
				return fmt.Errorf("measure %s with %d rows: %w", v.name, size.rows, err)
			}
			took[v.name] = append(took[v.name], durations...)
			return nil
		})
		if err != nil {
			return nil, err
		}
		base, native := median(took[noTrigger]), median(took[nativeChild])
		for _, v := range triggerStates() {
			middle := median(took[v.name])
			r.Costs = append(r.Costs, Cost{
				Rows: size.rows, Variant: v.name, Statements: len(took[v.name]),
				MS: latency.Milliseconds(middle), Ratio: ratio(float64(middle), float64(base)), RatioNative: ratio(float64(middle), float64(native)),
			})
		}
	}
	return r, nil
}

// deletes fills the table and returns how long each statement took that deletes so many rows of it.
func (s *Site) deletes(ctx context.Context, v triggerState, rows, statements int) ([]time.Duration, error) {
	last := rows*statements + 1
	release, err := s.arrange(ctx, v, int64(last))
	if err != nil {
		return nil, err
	}
	defer release()
	conn, closeConn, err := connect(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	defer closeConn()
	remove := func(from, to int) (time.Duration, error) {
		_, took, err := timed(ctx, conn, "DELETE FROM "+v.table()+" WHERE id BETWEEN $1 AND $2", from, to)
		return took, problem.Doing(err, "delete parents")
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
	_, _ = fmt.Fprintln(w, "rows\tvariant\tms\tratio to no trigger\tto one native child\tstatements")
	for _, c := range r.Costs {
		_, _ = fmt.Fprintf(w, "%d\t%s\t%.3f\t%.2f\t%.2f\t%d\n", c.Rows, words(c.Variant), c.MS, c.Ratio, c.RatioNative, c.Statements)
	}
	_, _ = fmt.Fprintf(w, "\nmedian of all statements of %d interleaved rounds, one DELETE by primary key each; %s\n", r.Rounds, r.Server)
}
