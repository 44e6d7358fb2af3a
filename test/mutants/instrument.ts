import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Instrumenter } from '@stryker-mutator/instrumenter'

/** A place in a file; lines and columns from 0. */
interface Position {
  readonly line: number
  readonly column: number
}

/** A change of the program that tests should find. */
export interface Mutant {
  readonly id: string
  readonly file: string
  readonly location: { readonly start: Position; readonly end: Position }
  readonly mutator: string
  readonly replacement: string
}

/** Mutants of texts say nothing about behaviour; the others are those of Stryker. */
const excludedMutations = ['StringLiteral']

const silent = {
  isDebugEnabled: () => false,
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  trace: () => undefined,
}

/** True for files whose mutants run inside the process of a test. `server` and `cli` run in processes of their own. */
function isMutated(file: string): boolean {
  return /^src\/(?!gen\/|server\/|cli\/).*\.ts$/.test(file)
}

type Source = Parameters<Instrumenter['instrument']>[0][number]

async function mutate(files: readonly Source[]): Promise<{ readonly files: readonly Source[]; readonly mutants: readonly Mutant[] }> {
  const instrumenter = new Instrumenter(silent as unknown as ConstructorParameters<typeof Instrumenter>[0]) // a cast: it calls no other method
  const made = await instrumenter.instrument(files, { plugins: null, excludedMutations, ignorers: [] })
  const mutants = made.mutants.map(({ id, fileName, location, mutatorName, replacement }) => ({
    id,
    file: fileName,
    location,
    mutator: mutatorName,
    replacement,
  }))
  return { files: made.files, mutants }
}

/** A key of a mutant, without its id. */
const keyOf = ({ file, location, mutator, replacement }: Mutant): string => JSON.stringify([file, location, mutator, replacement])

/** Copies the files that git tracks from `root` to `sandbox`, with a link to the installed packages. Returns their paths. */
export function copyTracked(root: string, sandbox: string): readonly string[] {
  const tracked = execFileSync('git', ['-C', root, 'ls-files'], { encoding: 'utf8' }).trim().split('\n')
  for (const file of tracked) {
    mkdirSync(dirname(join(sandbox, file)), { recursive: true })
    cpSync(join(root, file), join(sandbox, file))
  }
  symlinkSync(join(root, 'node_modules'), join(sandbox, 'node_modules'))
  return tracked
}

/**
 * Copies the files that git tracks from `root` to `sandbox`, and puts the mutants into the copy that `choose` chooses from all. Each stays off until its id is in
 * `__STRYKER_ACTIVE_MUTANT__`. Returns the chosen mutants. Only these are in the code: all of them would make it ten times slower.
 */
export async function instrument(
  root: string,
  { sandbox, choose }: { readonly sandbox: string; readonly choose: (all: readonly Mutant[]) => readonly Mutant[] },
): Promise<readonly Mutant[]> {
  const tracked = copyTracked(root, sandbox)
  const sources = tracked.filter(isMutated).map((file) => ({ name: file, mutate: true, content: readFileSync(join(root, file), 'utf8') }))
  const chosen = Map.groupBy(choose((await mutate(sources)).mutants), ({ file }) => file)
  const withChosen = sources
    .filter(({ name }) => chosen.has(name))
    .map((source) => ({ ...source, mutate: (chosen.get(source.name) ?? []).map(({ location }) => location) }))
  const { files, mutants } = await mutate(withChosen)
  for (const { name, content } of files) writeFileSync(join(sandbox, name), content)
  const wanted = new Set([...chosen.values()].flat().map(keyOf))
  return mutants.filter((mutant) => wanted.has(keyOf(mutant)))
}
