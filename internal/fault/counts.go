package fault

import "slices"

// Counts says how often one error of one table came up in a run.
type Counts struct {
	Table    string `json:"table"`
	SQLState string `json:"sqlstate"`
	Message  string `json:"message"`
	Count    int64  `json:"count"`
}

// mostCounts bounds a run's list: messages can name single rows, and a run over thousands of them must not list them all.
const mostCounts = 20

// Count adds a fault to a run's list and returns it, as append does. What there is no room for counts with the last one.
func Count(list []Counts, f Fault) []Counts {
	at := slices.IndexFunc(list, func(c Counts) bool {
		return c.Table == f.Table && c.SQLState == f.SQLState && c.Message == f.Message
	})
	switch {
	case at < 0 && len(list) < mostCounts:
		return append(list, Counts{Table: f.Table, SQLState: f.SQLState, Message: f.Message, Count: 1})
	case at < 0:
		at = len(list) - 1
	}
	list[at].Count++
	return list
}
