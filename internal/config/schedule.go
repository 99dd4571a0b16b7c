package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule is a cron expression with five fields (minute, hour, day of month, month, day of week), or one
// of @hourly, @daily, @every 90s and the like.
type Schedule string

// Parse returns the times of the schedule, or an error that says which part of it is wrong. A schedule that
// never comes, such as 31 February, is an error.
func (s Schedule) Parse() (cron.Schedule, error) {
	parsed, err := parseCron(string(s))
	if err != nil {
		return nil, explainCron(string(s))
	}
	// Any start will do: the parser looks five years ahead, which takes in a leap day.
	if parsed.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("never fires: no such date exists")
	}
	return parsed, nil
}

// parseCron guards the library, which slices a time zone up to the first space without looking for one.
func parseCron(text string) (cron.Schedule, error) {
	if strings.Contains(text, "TZ=") && !strings.Contains(text, " ") {
		return nil, errors.New("a time zone alone")
	}
	return cron.ParseStandard(text)
}

// explainCron finds the part that is wrong without repeating it.
func explainCron(text string) error {
	if strings.HasPrefix(text, "@") {
		return errors.New("is none of @yearly, @monthly, @weekly, @daily, @hourly and @every with a duration")
	}
	fields := strings.Fields(text)
	if len(fields) > 0 && strings.Contains(fields[0], "TZ=") {
		if _, err := parseCron(fields[0] + " * * * * *"); err != nil {
			return errors.New("names an unknown time zone")
		}
		fields = fields[1:]
	}
	if len(fields) != 5 {
		return fmt.Errorf("has %d fields; a cron expression has five: minute, hour, day of month, month, day of week", len(fields))
	}
	for i, name := range []string{"minute", "hour", "day of month", "month", "day of week"} {
		alone := []string{"*", "*", "*", "*", "*"}
		alone[i] = fields[i]
		if _, err := parseCron(strings.Join(alone, " ")); err != nil {
			return fmt.Errorf("its field %d, the %s, cannot be read", i+1, name)
		}
	}
	return errors.New("is not a cron expression")
}
