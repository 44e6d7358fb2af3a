/** Processor time in seconds that a test file may take, with its worker and the processes that it starts. */
export const fileSeconds = 15

/** Files with a larger limit, and the reason. */
export const exceptions: Readonly<Record<string, { readonly seconds: number; readonly why: string }>> = {
  'test/authz/many-bindings.test.ts': { seconds: 30, why: 'worlds of 10,000 and 40,000 bindings' },
  'test/bench/bench.test.ts': { seconds: 25, why: 'each row of the bench starts servers and a load of its own' },
  'test/e2e/chart/api-server.test.ts': { seconds: 35, why: 'helm, kubectl and an API server for each set of values' },
  'test/e2e/chart/rights/removed-rights.test.ts': { seconds: 20, why: 'a whole world under an API server that writes an audit log' },
  'test/contents/layers-hostile.test.ts': { seconds: 20, why: 'bombs that are read up to the limits' },
  'test/contents/scanners/scans.test.ts': { seconds: 40, why: 'a process reads each image and each report, and servers start again' },
  'test/contents/scanners/faults.test.ts': { seconds: 25, why: 'a process reads each image and each report, and servers start again' },
  'test/contents/scanners/hostile-scanners.test.ts': { seconds: 20, why: 'a process reads each image and each report' },
  'test/cli/import.test.ts': { seconds: 28, why: 'each import is a process' },
  'test/cli/command.test.ts': { seconds: 35, why: 'each command is a process, as a user starts it' },
  'test/conformance/spec/registry/contents.test.ts': { seconds: 20, why: 'a process reads each image' },
  'test/conformance/cost/cost.test.ts': { seconds: 50, why: 'dozens of requests of every method for every caller' },
  'test/conformance/cost/health.test.ts': { seconds: 35, why: 'seven attacks on servers that are processes' },
  'test/e2e/docs/walkthrough.test.ts': { seconds: 35, why: 'runs every command of four pages' },
  'test/faults/faults.test.ts': { seconds: 40, why: 'three installations of real processes under faults' },
  'test/faults/history/checker.test.ts': { seconds: 25, why: 'decides histories that have very many orders' },
  'test/faults/history/workload.test.ts': { seconds: 25, why: 'a workload and its check for each way in which a server can do wrong' },
  'test/conformance/fuzz/broken.test.ts': { seconds: 25, why: 'thousands of requests until a leak shows' },
  'test/conformance/fuzz/fuzz.test.ts': { seconds: 35, why: 'thousands of requests, two servers' },
  'test/kubernetes/controller-faults.test.ts': { seconds: 45, why: 'an API server for each test, which is killed' },
  'test/kubernetes/controller-kills.test.ts': { seconds: 40, why: 'three installations, whose controllers are processes that are killed' },
  'test/kubernetes/client/leader.test.ts': { seconds: 25, why: 'candidates that are processes, some of them suspended' },
  'test/kubernetes/semantics-ownership.test.ts': { seconds: 20, why: 'two worlds' },
  'test/kubernetes/semantics-removal.test.ts': { seconds: 22, why: 'the controllers of Kubernetes remove namespaces and definitions' },
  'test/conformance/matrix/matrix.test.ts': { seconds: 26, why: 'every method for callers of each kind at every place' },
  'test/e2e/process/api.test.ts': { seconds: 18, why: 'server processes on etcd for each test' },
  'test/e2e/process/worker.test.ts': { seconds: 24, why: 'worker and import processes that are killed or suspended, and what takes over' },
  'test/e2e/process/kills/catalogues.test.ts': { seconds: 22, why: 'server and import processes that are killed and started again' },
  'test/e2e/process/kills/contents.test.ts': { seconds: 55, why: 'processes that read images, and are killed and started again' },
  'test/e2e/process/kills/vulnerability-counts.test.ts': { seconds: 30, why: 'server and import processes that are killed and started again' },
  'test/e2e/docs/compose.test.ts': { seconds: 16, why: 'a server process for each service of the Compose files' },
  'test/e2e/process/command.test.ts': { seconds: 28, why: 'each command is a process' },
  'test/e2e/process/dev.test.ts': { seconds: 25, why: 'a server process for each test, and more' },
  'test/e2e/process/kill.test.ts': { seconds: 30, why: 'server processes that are killed and started again' },
  'test/e2e/process/large-blob.test.ts': { seconds: 28, why: 'a blob of 256 MiB both ways through a process' },
  'test/registry/oci/kill.test.ts': { seconds: 25, why: 'server processes that are killed and started again' },
  'test/conformance/walk/capability.test.ts': { seconds: 42, why: 'every method for every caller' },
}

/** Processor time that all files of a folder of test/ may take together, in seconds. */
export const folderSeconds: Readonly<Record<string, number>> = {
  audit: 30,
  auth: 12,
  authz: 50,
  base: 10,
  bench: 28,
  cache: 45,
  catalogue: 72,
  cli: 90,
  config: 14,
  contents: 180,
  'conformance/cost': 90,
  'conformance/fuzz': 60,
  'conformance/matrix': 50,
  'conformance/model': 65,
  'conformance/spec': 120,
  'conformance/walk': 75,
  'e2e/chart': 115,
  'e2e/docs': 55,
  'e2e/process': 175,
  events: 45,
  engine: 50,
  faults: 80,
  iam: 60,
  kubernetes: 215,
  mutants: 5,
  registry: 185,
  server: 48,
  soak: 1,
  store: 25,
  transport: 25,
  v1: 20,
}

/** The processor time of a test file. */
export interface FileCost {
  /** Path such as `test/<folder>/...`. */
  readonly file: string
  readonly cpuSeconds: number
}

/** Processor time of `referenceWork` on the reference machine, in milliseconds. */
const referenceMs = 65

/** How much processor time differs between runs: two more workers than cores compete for caches. */
const spread = 1.6

/** Does work that resembles that of the tests: objects, sorting, JSON. */
function referenceWork(): void {
  for (let round = 0; round < 40; round++) {
    const rows = Array.from({ length: 2_000 }, (_, at) => ({ uid: ((at * 2_654_435_761) % 2 ** 32).toString(16), name: `row ${at}` }))
    rows.sort((one, other) => (one.uid < other.uid ? -1 : 1))
    JSON.parse(JSON.stringify(rows))
  }
}

/** Returns how many times more processor time the reference work takes now than on the reference machine. */
export function slownessNow(): number {
  const start = process.cpuUsage()
  referenceWork()
  const { user, system } = process.cpuUsage(start)
  return (user + system) / 1000 / referenceMs
}

/** Returns how many times slower than the reference machine this machine is. Machines of one kind differ by a factor of three. */
export function slowness(): number {
  return Math.max(1, Math.min(...Array.from({ length: 3 }, slownessNow))) * spread
}

/** Returns how many times slower than the reference machine this machine was at the median of the samples, which were taken during a run. */
export function slownessDuring(samples: readonly number[]): number {
  const sorted = samples.toSorted((one, other) => one - other)
  return Math.max(1, sorted[Math.floor(sorted.length / 2)] ?? 1) * spread
}

const text = (seconds: number): string => `${seconds.toFixed(1)} s`

/** Returns the folder of test/ whose budget includes a file: `engine` for `test/engine/x.test.ts`, `e2e/chart` for `test/e2e/chart/x.test.ts`. */
function folderOf(file: string): string {
  const [top = '', below = ''] = file.split('/').slice(1)
  return top in folderSeconds ? top : `${top}/${below}`
}

/** A file or folder over its budget. */
export interface Excess {
  readonly line: string
  /** False if the excess is small: machines of one kind and runs of one tree differ as much. */
  readonly fails: boolean
}

/** How far over its budget a file or folder fails the run. */
const tolerated = 1.4

/** What is over its budget, on a machine that is `factor` times slower than the reference machine. */
export function overBudget(costs: readonly FileCost[], factor: number): readonly Excess[] {
  const excess = (name: string, took: number, budget: number): Excess[] =>
    took <= budget ? [] : [{ line: `${name} took ${text(took)} of processor time; it may take ${text(budget)}`, fails: took > budget * tolerated }]
  const folders = Map.groupBy(costs, ({ file }) => folderOf(file))
  return [
    ...costs.flatMap(({ file, cpuSeconds }) => excess(file, cpuSeconds, (exceptions[file]?.seconds ?? fileSeconds) * factor)),
    ...[...folders].flatMap(([folder, inside]) => {
      const seconds = folderSeconds[folder]
      if (seconds === undefined) return [{ line: `test/${folder} has no budget: add it to test/budgets.ts`, fails: true }]
      const took = inside.reduce((sum, { cpuSeconds }) => sum + cpuSeconds, 0)
      return excess(`test/${folder}`, took, seconds * factor)
    }),
  ]
}
