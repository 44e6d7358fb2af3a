import { parentPort } from 'node:worker_threads'
import { readmeFault } from './readme-fault.ts'

/** A thread of its own for readmes: gets their content, one at a time, from checkReadme and answers with what is wrong with each. */
parentPort?.on('message', (content: string) => parentPort?.postMessage(readmeFault(content)))
