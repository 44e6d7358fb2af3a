/** A fault put into code that runs in a process of its own, or whose tests are outages and kills. */
export interface HandPickedMutant {
  /** What the fault breaks. */
  readonly breaks: string
  readonly file: string
  /** Text that the file has once, and its replacement. */
  readonly from: string
  readonly to: string
  /** The tests of the full tier that can find it. */
  readonly tests: readonly string[]
}

const process = 'test/e2e/process'

const server: readonly HandPickedMutant[] = [
  {
    breaks: 'a stopping server does not drain',
    file: 'src/server/server.ts',
    from: '    await drain(ports, leaving, config.stop.drainSeconds)\n',
    to: '',
    tests: ['test/server/stop.test.ts', `${process}/api.test.ts`],
  },
  {
    breaks: 'a draining server reports that it is ready',
    file: 'src/server/server.ts',
    from: 'listening && !leaving.signal.aborted',
    to: 'listening',
    tests: ['test/server/stop.test.ts', `${process}/api.test.ts`],
  },
  {
    breaks: 'gRPC health stays SERVING in a draining server',
    file: 'src/server/server.ts',
    from: '    clearInterval(timer)\n    grpc.setReady(false)\n',
    to: '    clearInterval(timer)\n',
    tests: ['test/server/stop.test.ts', `${process}/api.test.ts`],
  },
  {
    breaks: 'connections of the API stay open while it drains',
    file: 'src/server/server.ts',
    from: 'beginDrain: () => api.port.beginDrain(),',
    to: 'beginDrain: () => undefined,',
    tests: ['test/server/stop.test.ts', `${process}/api.test.ts`],
  },
  {
    breaks: 'connections of the registry host stay open while it drains',
    file: 'src/server/registry-port.ts',
    from: 'if (draining) response.shouldKeepAlive = false',
    to: 'if (draining) response.shouldKeepAlive = true',
    tests: ['test/server/stop.test.ts', `${process}/registry.test.ts`],
  },
  {
    breaks: 'requests that are no HTTP get the answer of Node',
    file: 'src/server/registry-port.ts',
    from: "  server.on('clientError', host.unreadable)\n",
    to: '',
    tests: ['test/registry/oci', 'test/conformance/fuzz/fuzz.test.ts'],
  },
  {
    breaks: 'unknown methods add series to the metrics of the registry host',
    file: 'src/server/registry-port.ts',
    from: "methods.has(method) ? method : 'other'",
    to: 'method',
    tests: ['test/registry/oci'],
  },
  {
    breaks: 'a store of a newer version is opened',
    file: 'src/server/store-format.ts',
    from: '!(found <= storeFormat)',
    to: 'found < storeFormat',
    tests: ['test/server/store-format.test.ts'],
  },
  {
    breaks: 'a full store prevents the start',
    file: 'src/server/store-format.ts',
    from: "|| error.kind !== 'exhausted') throw error",
    to: ') throw error\n      throw error',
    tests: ['test/server/store-format.test.ts', `${process}/full-disk.test.ts`, `${process}/quota-alarm.test.ts`],
  },
  {
    breaks: 'log lines of a failed write are lost',
    file: 'src/server/logs/log-destination.ts',
    from: 'this.#wrote(bytes, error === null ? count : 0)',
    to: 'this.#wrote(bytes, error === null ? count : bytes.length)',
    tests: ['test/server/log-destination.test.ts'],
  },
  {
    breaks: 'a flush waits forever for a reader',
    file: 'src/server/logs/log-destination.ts',
    from: '!isBusy(error) || waits === maxFlushWaits',
    to: '!isBusy(error)',
    tests: ['test/server/log-destination.test.ts'],
  },
  {
    breaks: 'the token files are never renewed',
    file: 'src/server/dev-mode.ts',
    from: 'if (nowMs - writtenMs < renewAfterMs) return',
    to: 'if (nowMs - writtenMs < Infinity) return',
    tests: ['test/server/dev-mode.test.ts'],
  },
  {
    breaks: 'two first starts make two demo groups',
    file: 'src/server/dev-mode.ts',
    from: "  changes.guard({ kind: 'absent', key: demoKey })\n",
    to: '',
    tests: ['test/server/dev-mode.test.ts'],
  },
  {
    breaks: 'pull secrets allow pushes',
    file: 'src/server/controller-role.ts',
    from: 'restrictions: { capabilities: pullCapabilities },',
    to: 'restrictions: {},',
    tests: ['test/kubernetes/mirror/pull-secret.test.ts'],
  },
  {
    breaks: 'sinks learn the e-mail addresses of foreign people',
    file: 'src/server/delivery.ts',
    from: 'signer.requestOf(withoutForeignEmail(event, engine.cache.tables), group)',
    to: 'signer.requestOf(event, group)',
    tests: ['test/events'],
  },
  {
    breaks: 'sinks may have any private address',
    file: 'src/server/delivery.ts',
    from: 'networks: createNetworks(networks)',
    to: "networks: createNetworks(['0.0.0.0/0', '::/0', ...networks])",
    tests: ['test/events'],
  },
  {
    breaks: 'the leader never expires data',
    file: 'src/server/background.ts',
    from: "keepDoing(background, { name: 'trim', work: expire,",
    to: "keepDoing(background, { name: 'trim', work: () => Promise.resolve(),",
    tests: ['test/engine', `${process}/quota-alarm.test.ts`],
  },
  {
    breaks: 'a cascade starts late',
    file: 'src/server/background.ts',
    from: 'if (key.startsWith(cascadePrefix)) marked.ring()',
    to: 'if (key.startsWith(cascadePrefix)) return',
    tests: ['test/engine', 'test/conformance/spec/iam/groups.test.ts'],
  },
  {
    breaks: 'a process leads on after it has lost the leadership',
    file: 'src/server/background.ts',
    from: 'AbortSignal.any([signal, leadership.lost])',
    to: 'signal',
    tests: ['test/engine', 'test/faults/faults.test.ts', `${process}/events.test.ts`],
  },
  {
    breaks: 'a failed job of the leader is never tried again',
    file: 'src/server/background.ts',
    from: '      await alarm.within(afterMs, signal)\n',
    to: '      return\n',
    tests: ['test/engine', 'test/faults/faults.test.ts', `${process}/full-disk.test.ts`],
  },
]

const audit: readonly HandPickedMutant[] = [
  {
    breaks: 'strangers cause any number of audit events',
    file: 'src/server/audit/audit-trail.ts',
    from: '    denials.bucket.spend(1)\n',
    to: '',
    tests: ['test/server/audit'],
  },
  {
    breaks: 'a stop loses the events of the last 10 ms',
    file: 'src/server/audit/audit-trail.ts',
    from: '      release()\n      const last',
    to: '      const last',
    tests: ['test/server/audit'],
  },
  {
    breaks: 'delivered events count as waiting',
    file: 'src/server/audit/spool.ts',
    from: '    this.#storedBytes -= bytes\n',
    to: '',
    tests: ['test/server/audit'],
  },
  {
    breaks: 'a receiver that refuses one event loses its whole batch',
    file: 'src/server/audit/remote-sink.ts',
    from: '      if (count > 1) return Math.ceil(count / 2)\n',
    to: '',
    tests: ['test/server/audit'],
  },
  {
    breaks: 'the audit file grows without limit',
    file: 'src/server/audit/file-sink.ts',
    from: 'this.#size + bytes.length > this.#options.maxBytes',
    to: 'this.#size + bytes.length > Infinity',
    tests: ['test/server/audit'],
  },
]

const cli: readonly HandPickedMutant[] = [
  {
    breaks: 'a pull token that cannot be bound leaves an identity',
    file: 'src/cli/pull-token.ts',
    from: "    await client.call({ method: 'DELETE', path: `/iam/v2/identities/${uid}` }).catch(() => undefined)\n",
    to: '',
    tests: ['test/cli'],
  },
  {
    breaks: 'revoke deletes any identity',
    file: 'src/cli/pull-token.ts',
    from: "if (!isPullToken(await client.call({ method: 'GET', path }), registry))",
    to: "if (isPullToken({ ...(await client.call({ method: 'GET', path })) }, '-'))",
    tests: ['test/cli'],
  },
  {
    breaks: 'a pull token may live forever',
    file: 'src/cli/pull-token.ts',
    from: 'ttlMs > 0 && ttlMs <= pullTokenTtl.maxHours * hourMs',
    to: 'ttlMs > 0',
    tests: ['test/cli'],
  },
  {
    breaks: 'an ambiguous name gets the first record',
    file: 'src/cli/get.ts',
    from: 'if (others.length === 0 && totalCount === 1) return found',
    to: 'if (others.length >= 0 || totalCount === 1) return found',
    tests: ['test/cli'],
  },
  {
    breaks: '--follow loses its place when it connects again',
    file: 'src/cli/client/event-stream.ts',
    from: '      cursor = id\n',
    to: '',
    tests: ['test/cli'],
  },
  {
    breaks: '--follow hides that its cursor is too old',
    file: 'src/cli/client/event-stream.ts',
    from: '      throw explained(final)\n',
    to: '      return\n',
    tests: ['test/cli'],
  },
  {
    breaks: 'taproot tree repeats groups below a visible root',
    file: 'src/cli/tree/gather.ts',
    from: 'held.filter((uid) => !visibleRoots.has(rootOf(trustedUid(uid)))),',
    to: 'held,',
    tests: ['test/cli'],
  },
  {
    breaks: 'the command waits as long as a server tells it to',
    file: 'src/cli/client/retry.ts',
    from: 'Number.isNaN(waitMs) || waitMs > retryLimits.longestWaitMs',
    to: 'Number.isNaN(waitMs)',
    tests: ['test/cli'],
  },
  {
    breaks: 'certificates are renewed for names that they have',
    file: 'src/cli/init-secrets/secret-plan.ts',
    from: "if (!found.isOurs || wanted.kind !== 'certificate') return 'keep'",
    to: "if (wanted.kind !== 'certificate') return 'keep'",
    tests: ['test/e2e/chart/init-secrets.test.ts'],
  },
  {
    breaks: 'a dry run removes content',
    file: 'src/cli/collect-garbage.ts',
    from: 'const dryRun = options.dryRun === true',
    to: 'const dryRun = false',
    tests: [`${process}/collect-garbage.test.ts`],
  },
]

const faults: readonly HandPickedMutant[] = [
  {
    breaks: 'a doubtful transaction is not fenced off',
    file: 'src/store/etcd/etcd-writer.ts',
    from: '    if (this.#inDoubt) await this.fence()\n',
    to: '',
    tests: ['test/store', 'test/faults/faults.test.ts'],
  },
  {
    breaks: 'a fenced transaction counts as a conflict',
    file: 'src/store/etcd/etcd-writer.ts',
    from: 'if (revision === writer.revision) return true',
    to: 'if (revision >= 0) return true',
    tests: ['test/store', 'test/faults/faults.test.ts'],
  },
  {
    breaks: 'an unanswered write counts as refused',
    file: 'src/store/etcd/etcd-errors.ts',
    from: "(isWrite ? 'indeterminate' : 'unavailable')",
    to: "'unavailable'",
    tests: ['test/store', 'test/faults/faults.test.ts'],
  },
  {
    breaks: 'a silent watch counts as complete',
    file: 'src/store/etcd/etcd-watch.ts',
    from: 'goal !== undefined && goal.due > at ? await dueMessage(reader) : undefined',
    to: 'undefined',
    tests: ['test/store', `${process}/lost-watch.test.ts`],
  },
  {
    breaks: 'a lease that was not renewed still leads',
    file: 'src/store/etcd/etcd-lease.ts',
    from: "() => this.#end(new StoreError('unavailable', 'the etcd lease expired before it was renewed')),",
    to: '() => undefined,',
    tests: ['test/store', 'test/faults/faults.test.ts'],
  },
]

/** Faults in code that the mutants of Stryker do not reach, because it runs in processes of its own. */
export const handPickedMutants: readonly HandPickedMutant[] = [...server, ...audit, ...cli, ...faults]
