package main

import (
	"fmt"
	"strings"
)

// moment is an event that happened between two times, both inclusive.
type moment struct {
	from, to int64
	text     string
}

// timeline is a set of moments with a known partial order. It can be checked for contradictions in time proportional to the number of
// ordered pairs.
type timeline struct {
	moments []moment
	next    [][]int
}

func (t *timeline) add(from, to int64, text string) int {
	t.moments = append(t.moments, moment{from, to, text})
	t.next = append(t.next, nil)
	return len(t.moments) - 1
}

// order states that one moment is before another.
func (t *timeline) order(first, then int) {
	t.next[first] = append(t.next[first], then)
}

// contradiction returns a description of moments that cannot have happened in the required order; empty if there is no contradiction.
func (t *timeline) contradiction() string {
	waits := make([]int, len(t.moments))
	for _, after := range t.next {
		for _, then := range after {
			waits[then]++
		}
	}
	ready := []int{}
	for at, count := range waits {
		if count == 0 {
			ready = append(ready, at)
		}
	}
	earliest, cause := make([]int64, len(t.moments)), make([]int, len(t.moments))
	for at, m := range t.moments {
		earliest[at], cause[at] = m.from, -1
	}
	done := 0
	for ; done < len(ready); done++ {
		at := ready[done]
		if earliest[at] > t.moments[at].to {
			return t.chain(cause, at)
		}
		for _, then := range t.next[at] {
			if earliest[at] > earliest[then] {
				earliest[then], cause[then] = earliest[at], at
			}
			if waits[then]--; waits[then] == 0 {
				ready = append(ready, then)
			}
		}
	}
	if done < len(t.moments) {
		return t.circle(waits)
	}
	return ""
}

// chain describes the sequence of moments which shows that a moment would be later than possible.
func (t *timeline) chain(cause []int, last int) string {
	lines := []string{}
	for at := last; at >= 0; at = cause[at] {
		lines = append([]string{t.line(at)}, lines...)
	}
	return "each of these is before the next, but there was no time for it:\n  " + strings.Join(lines, "\n  ")
}

// circle describes moments that are in a circular order. Every moment with unfinished predecessors comes after such a circle.
func (t *timeline) circle(waits []int) string {
	before := make([]int, len(t.moments))
	start := 0
	for at, count := range waits {
		if count == 0 {
			continue
		}
		start = at
		for _, then := range t.next[at] {
			before[then] = at
		}
	}
	for range t.moments {
		start = before[start]
	}
	lines := []string{t.line(start)}
	for at := before[start]; at != start; at = before[at] {
		lines = append([]string{t.line(at)}, lines...)
	}
	return "each of these is before the next, and the last before the first:\n  " + strings.Join(lines, "\n  ")
}

func (t *timeline) line(at int) string {
	m := t.moments[at]
	if m.to == forever {
		return fmt.Sprintf("%s, at %d or later", m.text, m.from)
	}
	return fmt.Sprintf("%s, between %d and %d", m.text, m.from, m.to)
}
