import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { env } from 'node:process'
import packed, { inflate } from '@sparticuz/chromium'
import { chromium, type Browser } from 'playwright-core'

/** What a headless Chromium needs where it runs as root in a container, and where nothing of the outside is to be asked. The browser's own rules stay as people have them. */
const switches = ['--no-sandbox', '--no-zygote', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--disable-component-update']

/** The package's archive of the libraries that a bare system lacks (NSS, NSPR). */
const libraries = join(dirname(createRequire(import.meta.url).resolve('@sparticuz/chromium')), '../bin/al2023.tar.br')

/** Starts a real Chromium, which the package brings with all that it needs besides a C library. */
export async function startBrowser(): Promise<Browser> {
  const executablePath = await packed.executablePath()
  await inflate(libraries)
  const own = [join(tmpdir(), 'al2023', 'lib'), env['LD_LIBRARY_PATH'] ?? ''].filter((path) => path !== '')
  return await chromium.launch({ executablePath, args: switches, headless: true, env: { ...env, LD_LIBRARY_PATH: own.join(':') } })
}
