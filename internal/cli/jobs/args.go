package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sexton/internal/migrate"
	riverjobs "sexton/river_jobs"
)

// completeArgs checks arguments against what the kind takes and fills in what has a default.
func completeArgs(job riverjobs.Job, raw string) (json.RawMessage, error) {
	given := map[string]json.RawMessage{}
	if raw != "" {
		if err := json.Unmarshal([]byte(raw), &given); err != nil || given == nil {
			return nil, fmt.Errorf("must be a JSON object; %s", taken(job))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, known := job.Args[name]; !known {
			return nil, fmt.Errorf("the job has no argument %q; %s", name, taken(job))
		}
	}
	complete := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(job.Args)) {
		value, there := given[name]
		switch fallback, optional := job.Defaults[name]; {
		case there:
			parsed, err := parseArg(job.Args[name], value)
			if err != nil {
				return nil, fmt.Errorf("the argument %s %w", name, err)
			}
			complete[name] = parsed
		case optional:
			complete[name] = fallback
		default:
			return nil, fmt.Errorf("the argument %s is missing; %s", name, taken(job))
		}
	}
	return json.Marshal(complete)
}

func parseArg(kind string, value json.RawMessage) (any, error) {
	var err error
	switch kind {
	case migrate.Bigint:
		var n *int64
		if err = json.Unmarshal(value, &n); err == nil && n != nil {
			return *n, nil
		}
		return nil, errors.New("must be a whole number")
	case migrate.Boolean:
		var b *bool
		if err = json.Unmarshal(value, &b); err == nil && b != nil {
			return *b, nil
		}
		return nil, errors.New("must be true or false")
	default:
		var s *string
		if err = json.Unmarshal(value, &s); err == nil && s != nil {
			return *s, nil
		}
		return nil, errors.New("must be a text")
	}
}

// taken says which arguments a kind takes.
func taken(job riverjobs.Job) string {
	if len(job.Args) == 0 {
		return job.Kind + " takes no arguments"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(job.Args)) {
		parts = append(parts, fmt.Sprintf("%q: %s", name, job.Args[name]))
	}
	return fmt.Sprintf("%s takes {%s}", job.Kind, strings.Join(parts, ", "))
}
