/** One shell block of a page, and the output shown after it. */
export interface Step {
  /** The block's first line, to name the step by. */
  readonly title: string
  readonly script: string
  /** True if it is marked `sh (keeps running)`: it is started in another terminal. */
  readonly keepsRunning: boolean
  /** The text of the `json` or `text` block that follows the shell block directly. */
  readonly shown: string | undefined
}

const fence = /^```([^\n]*)\n([\s\S]*?)^```$/gm

interface Block {
  readonly info: string
  readonly text: string
  /** Its position in the page. */
  readonly from: number
  readonly to: number
}

function blocksOf(page: string, heading: string): Block[] {
  const start = page.indexOf(`\n## ${heading}\n`)
  if (start < 0) throw new Error(`no section ${heading}`)
  const end = page.indexOf('\n## ', start + 1)
  const section = page.slice(start, end < 0 ? undefined : end)
  return [...section.matchAll(fence)].map((match) => ({
    info: match[1] ?? '',
    text: match[2] ?? '',
    from: start + match.index,
    to: start + match.index + match[0].length,
  }))
}

function isCommand({ info }: Block): boolean {
  return /^sh\b/.test(info)
}

/** The headings of the sections that have a shell block, in order. */
export function headingsWithCommands(page: string): string[] {
  const headings = [...page.matchAll(/^## (.+)$/gm)].map(([, heading = '']) => heading)
  return headings.filter((heading) => blocksOf(page, heading).some(isCommand))
}

/** Returns the shell blocks of the section under `## <heading>`, in order. Throws if there are none. */
export function readmeSteps(page: string, heading: string): Step[] {
  const blocks = blocksOf(page, heading)
  const steps = blocks.flatMap((block, at): Step[] => {
    if (!isCommand(block)) return []
    const next = blocks[at + 1]
    const followed = next !== undefined && /^(?:json|text)$/.test(next.info) && page.slice(block.to, next.from).trim() === ''
    const title = block.text.trim().split('\n')[0] ?? ''
    return [{ title: title.slice(0, 80), script: block.text, keepsRunning: block.info.includes('(keeps running)'), shown: followed ? next.text : undefined }]
  })
  if (steps.length === 0) throw new Error(`no shell blocks under ${heading}`)
  return steps
}
