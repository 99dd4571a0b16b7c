package triggers

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// WakeChannel is the channel of notifications about new work. The payload is the job
// kind.
const WakeChannel = "sexton_wake"

// wakeFunction is the name of the function that all wake triggers run.
const wakeFunction = "wake_worker"

// awakeSpace is the first key of every awake lock: "sext" in ASCII.
const awakeSpace int32 = 0x73657874

// Wake describes a table whose rows are work for a job kind.
type Wake struct {
	Schema string
	Table  string
	Kind   string
	// Due, if set, is an SQL condition on the row NEW, such as NEW.namespace_id IS NULL,
	// for a table of the application. A row wakes the worker if it meets the condition
	// when it is inserted, or begins to meet it by an UPDATE. Otherwise every new row
	// wakes the worker.
	Due string
}

// AwakeKey returns the two keys of the session advisory lock that a worker holds
// exclusively while it is awake for a job kind in the connected database. Installed
// triggers contain the keys, so they must never change. Two kinds must not have the same
// key: writers of rows for one kind would not notify while a worker of the other kind is
// awake, and their rows would wait for the next tick.
func AwakeKey(kind string) (k1, k2 int32) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte("sexton\x00" + kind)) // Write of a hash never returns an error.
	return awakeSpace, int32(hash.Sum32())
}

// template returns the statement that creates or replaces a wake trigger. The statement
// contains the placeholders that createTrigger replaces.
func (w Wake) template(trigger string) string {
	event, each, due := "INSERT", "FOR EACH ROW", "("+w.Due+")\n    AND "
	switch {
	case trigger == WakeUpdateTrigger:
		event = "UPDATE"
		due += "(" + strings.ReplaceAll(w.Due, "NEW.", "OLD.") + ") IS NOT TRUE\n    AND "
	case w.Due == "":
		each, due = "REFERENCING NEW TABLE AS sexton_added\nFOR EACH STATEMENT", ""
	}
	k1, k2 := AwakeKey(w.Kind)
	return strings.NewReplacer(
		`"trigger_name"`, trigger, `"event"`, event, `"for_each"`, each, `"due"`, due,
		`'awake_key_1'`, pgcatalog.Literal(strconv.Itoa(int(k1))), `'awake_key_2'`,
		pgcatalog.Literal(strconv.Itoa(int(k2))),
	).Replace(sqlText("tables/sexton_wake"))
}

// wakeTargets returns the wake triggers of all tables, and one problem for each table
// that cannot have them.
func (c Config) wakeTargets(ctx context.Context, tx pgx.Tx) (targets []target, problems []error, err error) {
	schemas, tables, kinds, first, second, due := []string{}, []string{}, []string{}, []int32{}, []int32{}, []string{}
	for _, w := range c.Wake {
		k1, k2 := AwakeKey(w.Kind)
		schemas, tables, kinds = append(schemas, w.Schema), append(tables, w.Table), append(kinds, w.Kind)
		first, second, due = append(first, k1), append(second, k2), append(due, w.Due)
	}
	found, err := readTargets(ctx, tx, "wake triggers", "wakes", schemas, tables, kinds, first, second, due)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range found {
		t.wakes = c.Wake[t.position]
		if t.Trigger == WakeUpdateTrigger && t.relkind != "r" {
			continue // The same problem is reported for the other trigger of the table.
		}
		switch t.relkind {
		case "":
			problems = append(problems, fmt.Errorf("wake on table %s: it does not exist", t.Display))
		case "r":
			targets = append(targets, t)
		default:
			problems = append(problems, fmt.Errorf("wake on table %s: it is not an ordinary table", t.Display))
		}
	}
	return targets, problems, nil
}

// checkWake validates Wake. A table wakes only one kind, because the trigger has a fixed
// name.
func (c Config) checkWake() error {
	type slot struct{ schema, table string }
	kinds := map[slot]bool{}
	for _, w := range c.Wake {
		switch {
		case w.Schema == "" || w.Table == "" || w.Kind == "":
			return fmt.Errorf("configure triggers: wake on table %q.%q for kind %q: a name is empty", w.Schema, w.Table,
				w.Kind)
		case kinds[slot{w.Schema, w.Table}]:
			return fmt.Errorf("configure triggers: table %s.%s wakes two kinds", w.Schema, w.Table)
		}
		kinds[slot{w.Schema, w.Table}] = true
	}
	return nil
}
