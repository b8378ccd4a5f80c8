"""Chat templates of the shapes that models come with, and some that take notice of what they are given."""

from __future__ import annotations

# ruff: noqa: E501
TEMPLATES = {
    "ChatML": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
        "{{ '<|im_start|>assistant\\n' }}"
    ),
    "Qwen 2.5": (
        "{%- if messages[0]['role'] == 'system' %}{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}"
        "{%- else %}{{- '<|im_start|>system\\nYou are Qwen, a helpful assistant.<|im_end|>\\n' }}{%- endif %}"
        "{%- for message in messages %}{%- if (message.role == 'user') or (message.role == 'system' and not loop.first)"
        " or message.role == 'assistant' %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
        "{%- endif %}{%- endfor %}{{- '<|im_start|>assistant\\n' }}"
    ),
    "Qwen 3": (
        "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}"
        "{%- endif %}{%- set ns = namespace(multi_step_tool=true, last=messages|length - 1) %}"
        "{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}"
        "{%- if ns.multi_step_tool and message.role == 'user' and message.content is string and not("
        "message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}"
        "{%- set ns.multi_step_tool = false %}{%- set ns.last = index %}{%- endif %}{%- endfor %}"
        "{%- for message in messages %}{%- set content = message.content %}"
        "{%- if (message.role == 'user') or (message.role == 'system' and not loop.first) %}"
        "{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}"
        "{%- elif message.role == 'assistant' %}{%- set reasoning = '' %}{%- if '</think>' in content %}"
        "{%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
        "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
        "{%- if loop.index0 > ns.last and reasoning %}{{- '<|im_start|>assistant\\n<think>\\n' + reasoning + "
        "'\\n</think>\\n\\n' + content }}{%- else %}{{- '<|im_start|>assistant\\n' + content }}{%- endif %}"
        "{{- '<|im_end|>\\n' }}{%- endif %}{%- endfor %}{{- '<|im_start|>assistant\\n' }}"
    ),
    "Llama 3": (
        "{{- bos_token }}{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content']|trim %}"
        "{%- set messages = messages[1:] %}{%- else %}{%- set system = '' %}{%- endif %}"
        "{{- '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\n' }}"
        "{{- system }}{{- '<|eot_id|>' }}{%- for message in messages %}"
        "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}"
        "{%- endfor %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    ),
    "Gemma": (
        "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set first = messages[0]['content'] + '\\n\\n' -%}"
        "{%- set loop_messages = messages[1:] -%}{%- else -%}{%- set first = '' -%}{%- set loop_messages = messages -%}"
        "{%- endif -%}{%- for message in loop_messages -%}{%- set role = 'model' if message['role'] == 'assistant' else "
        "message['role'] -%}{{ '<start_of_turn>' + role + '\\n' + (first if loop.first else '') }}"
        "{{ message['content'] | trim }}{{ '<end_of_turn>\\n' }}{%- endfor -%}{{ '<start_of_turn>model\\n' }}"
    ),
    "Mistral": (
        "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}{%- set rest = messages[1:] %}"
        "{%- else %}{%- set rest = messages %}{%- endif %}{{- bos_token }}{%- for message in rest %}"
        "{%- if message['role'] == 'user' %}{%- if loop.last and system is defined %}"
        "{{- '[INST]' + system + '\\n\\n' + message['content'] + '[/INST]' }}{%- else %}"
        "{{- '[INST]' + message['content'] + '[/INST]' }}{%- endif %}{%- else %}"
        "{{- ' ' + message['content']|trim + eos_token }}{%- endif %}{%- endfor %}"
    ),
    "Phi": (
        "{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}"
        "{% elif message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% else %}"
        "{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}{% endfor %}{{ '<|assistant|>\\n' }}"
    ),
    "DeepSeek": (
        "{% set ns = namespace(system='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}"
        "{% set ns.system = ns.system + message['content'] %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system }}"
        "{%- for message in messages %}{%- if message['role'] == 'user' %}{{ '<｜User｜>' + message['content'] }}"
        "{%- elif message['role'] == 'assistant' %}{% set content = message['content'] %}{% if '</think>' in content %}"
        "{% set content = content.split('</think>')[-1] %}{% endif %}"
        "{{ '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>' }}{%- endif %}{%- endfor %}{{ '<｜Assistant｜>' }}"
    ),
    "a length": "{% for m in messages %}[{{ m.content | length }}]{{ m.content }}{% endfor %}",
    "capitals": "{% for m in messages %}{{ m.role }}:{{ m.content | upper }};{% endfor %}",
    "the last alone": "system user assistant a {{ messages[-1].content }}",
}
