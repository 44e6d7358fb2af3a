import { enableCompileCache } from 'node:module'

// The command's modules are loaded after this, so that a second start finds them compiled.
enableCompileCache()
const { main } = await import('./main.ts')
await main(process.argv)
