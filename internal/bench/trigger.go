package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sexton/internal/jobrun"
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

// Trigger measures autocommitted deletes of 1, 100, 10,000 and 1,000,000 rows by primary key, of at most most.
func Trigger(ctx context.Context, s *Site, most int) (*Report, error) {
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
	states := triggerStates()
	var costs []Row
	for _, size := range []struct{ rows, statements int }{{1, 100}, {100, 34}, {10_000, 3}, {1_000_000, 1}} {
		if size.rows > most {
			break
		}
		rounds, err := inTurn(triggerRounds, states, func(_ int, v triggerState) ([]time.Duration, error) {
			s.Progress("%d rows, %s", size.rows, v.name)
			took, err := s.deletes(ctx, v, size.rows, size.statements)
			return took, problem.Doing(err, "measure %s with %d rows", v.name, size.rows)
		})
		if err != nil {
			return nil, err
		}
		took, medians := map[string][]time.Duration{}, map[string]float64{}
		for i, v := range states {
			took[v.name] = slices.Concat(rounds[i]...)
			medians[v.name] = float64(median(took[v.name]))
		}
		for _, v := range states {
			middle := medians[v.name]
			costs = append(costs, append(append(Row{{"rows", "rows", "%d", size.rows}}, variantFigure("variant", v.name)...), Row{
				{"ms", "ms", "%.3f", jobrun.Milliseconds(time.Duration(middle))},
				{"ratio_to_no_trigger", "ratio to no trigger", "%.2f", ratio(middle, medians[noTrigger])},
				{"ratio_to_native_1_child", "to one native child", "%.2f", ratio(middle, medians[nativeChild])},
				{"statements", "statements", "%d", len(took[v.name])},
			}...))
		}
	}
	r := &Report{Row: Row{{"benchmark", "", "", "trigger"}, {"server", "", "", s.Server}, {"rounds", "", "", triggerRounds}, {"costs", "", "", costs}}}
	r.show(costs...)
	r.notef("median of all statements of %d interleaved rounds, one DELETE by primary key each; %s", triggerRounds, s.Server)
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
