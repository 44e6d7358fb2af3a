package main

import (
	"fmt"
	"sort"
	"strings"
)

// verb is what an event does to a record, or observes of it.
type verb int

const (
	creates verb = iota
	updates
	deletes
	// vanishes: the record, if it exists, is removed with its identity or group.
	vanishes
	// reads: the record existed with this value and etag.
	reads
	// isPresent: the record existed.
	isPresent
	// isAbsent: the record did not exist.
	isAbsent
	// isStale: the record existed, with an etag other than the guard.
	isStale
)

var verbNames = [...]string{"create", "update", "delete", "vanish", "read", "present", "absent", "stale"}

// event is an operation from the view of one record. An unsure event may take effect at any time up to ret, or never.
type event struct {
	verb      verb
	client    int
	call, ret int64
	sure      bool
	value     string
	// among: the possible values of a creation that is one of several creations.
	among      []string
	etag       string
	guard      string
	guardValue string
	// idle: no observation of the record requires that the event took effect.
	idle bool
	// listed: the event is a record in a list.
	listed bool
}

func (e *event) String() string {
	text := fmt.Sprintf("%s[client %d, %d..", verbNames[e.verb], e.client, e.call)
	if e.ret == forever {
		text += "?]"
	} else {
		text += fmt.Sprintf("%d]", e.ret)
	}
	for _, part := range [][2]string{{"value", e.value}, {"etag", e.etag}, {"guard", e.guard}} {
		if part[1] != "" {
			text += fmt.Sprintf(" %s=%.80s", part[0], part[1])
		}
	}
	if !e.sure {
		text += " outcome unknown"
	}
	return text
}

// record is everything that is known about one record.
type record struct {
	kind, uid, parent, identity string
	create                      *event
	events                      []*event
}

func (r *record) name() string {
	return fmt.Sprintf("record %s %s", r.kind, r.uid)
}

// isLive returns true if the event shows that the record existed.
func (e *event) isLive() bool {
	return e.sure && (e.verb == reads || e.verb == updates || e.verb == deletes || e.verb == isPresent || e.verb == isStale)
}

func (e *event) removes() bool {
	return e.verb == deletes || e.verb == vanishes
}

// surelyGone returns when a removal was acknowledged: after that, the record never exists again.
func (r *record) surelyGone() int64 {
	gone := int64(forever)
	for _, e := range r.events {
		if e.sure && e.removes() {
			gone = min(gone, e.ret)
		}
	}
	return gone
}

// firstLive returns the time by which the record existed, as the first observation of it shows.
func (r *record) firstLive() int64 {
	first := int64(forever)
	for _, e := range r.events {
		if e.isLive() && e.ret < first {
			first = e.ret
		}
	}
	return first
}

// bound narrows the time in which unsure events took effect, by what other operations observed. Events without any observation become
// idle. This does not change whether the history has a valid order, but makes the search much shorter. lacked are the lists that did not
// show the record.
func (r *record) bound(lacked []*operation) {
	live := r.firstLive()
	if r.create != nil && !r.create.sure {
		r.create.ret = max(r.create.call, live)
	}
	r.boundUpdates()
	r.boundRemovals(lacked, live)
	if r.create != nil {
		r.boundCreation(lacked, live)
	}
}

// boundCreation narrows the time of the record's creation. It ended before the first operation that saw the record returned. It began
// after each operation that found no record began, if the record cannot have been removed by then. Otherwise a creation that was repeated
// much later would be possible at any time.
func (r *record) boundCreation(lacked []*operation, live int64) {
	removable := int64(forever)
	for _, e := range r.events {
		if e.removes() && !e.idle {
			removable = min(removable, e.call)
		}
	}
	after := r.create.call
	miss := func(call, ret int64) {
		// The time is later than the call of the operation that found no record. The search tries earlier calls first, and would try that
		// operation after every set of such creations.
		if ret < removable {
			after = max(after, call+1)
		}
	}
	for _, e := range r.events {
		if e.verb == isAbsent {
			miss(e.call, e.ret)
		}
	}
	for _, o := range lacked {
		miss(o.Call, o.returned())
	}
	r.create.ret = min(r.create.ret, max(r.create.call, live))
	// If no time remains, the record has no valid order, which the checker then reports.
	r.create.call = min(after, r.create.ret)
}

func (r *record) boundUpdates() {
	known := map[string]bool{}
	writers := map[string]int{}
	stale := false
	for _, e := range r.events {
		stale = stale || e.verb == isStale
		if e.verb != creates && e.verb != updates {
			continue
		}
		if e.etag != "" {
			known[e.etag] = true
			continue
		}
		for _, value := range e.values() {
			writers[value]++
		}
	}
	// By value: the latest time by which a state was seen that no answered write explains.
	shown := map[string]int64{}
	show := func(value, etag string, ret int64) {
		if before, found := shown[value]; etag != "" && !known[etag] && (!found || ret < before) {
			shown[value] = ret
		}
	}
	for _, e := range r.events {
		if e.verb == reads {
			show(e.value, e.etag, e.ret)
		} else if e.sure && (e.verb == updates || e.verb == deletes) {
			show(e.guardValue, e.guard, e.ret)
		} else if e.verb == updates || e.verb == deletes {
			// A client used this etag as guard, so an earlier response contained it.
			show(e.guardValue, e.guard, forever)
		}
	}
	for _, e := range r.events {
		if e.sure || e.verb != updates {
			continue
		}
		latest, found := shown[e.value]
		if found && writers[e.value] == 1 {
			e.ret = max(e.call, latest)
		}
		e.idle = !found && !stale
	}
}

// lastLive returns the last time at which an operation began that saw the record. A removed record never exists again, so no removal took
// effect before this time.
func (r *record) lastLive() int64 {
	last := int64(0)
	for _, e := range r.events {
		if e.isLive() {
			last = max(last, e.call)
		}
	}
	return last
}

func (r *record) boundRemovals(lacked []*operation, live int64) {
	sureDelete, sureVanish, unsure := false, false, 0
	for _, e := range r.events {
		sureDelete = sureDelete || e.sure && e.verb == deletes
		sureVanish = sureVanish || e.sure && e.verb == vanishes
		if e.removes() && !e.sure {
			unsure++
		}
	}
	if unsure == 0 || r.create == nil {
		return
	}
	// The record existed at this time at the latest. So an operation that begins later and does not find it shows that it was removed.
	there := min(r.create.ret, live)
	gone, missed := int64(forever), false
	after := max(r.create.call, r.lastLive())
	miss := func(call, ret int64) {
		missed = missed || ret >= after
		if call > there && ret < gone {
			gone = ret
		}
	}
	for _, e := range r.events {
		if e.verb == isAbsent {
			miss(e.call, e.ret)
		}
	}
	for _, o := range lacked {
		miss(o.Call, o.returned())
	}
	for _, e := range r.events {
		if e.sure || !e.removes() {
			continue
		}
		e.idle = sureDelete || !missed
		e.call = max(e.call, after)
		if unsure == 1 && !sureDelete && !sureVanish && gone != forever {
			e.ret = max(e.call, gone)
		}
	}
}

// values returns the values that a write may have written.
func (e *event) values() []string {
	if len(e.among) > 0 {
		return e.among
	}
	return []string{e.value}
}

// partition returns the check of the record's own history.
func (r *record) partition() partition {
	p := partition{name: r.name(), initial: recordState{}}
	for _, e := range r.events {
		if !e.idle {
			p.add(e.client, e.call, e.ret, e.step, e.String())
		}
	}
	return p
}

func sortedKeys[V any](of map[string]V) []string {
	keys := make([]string, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

func join(parts ...string) string {
	return strings.Join(parts, " ")
}
