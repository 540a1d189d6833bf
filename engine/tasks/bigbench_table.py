"""What the project knows about BIG-Bench's tasks: their category and which of them have more than one right answer.

The ten categories are those of the source text's table 1, which does not say what belongs where. The division here is
the project's own, by what a task mainly asks for (its keywords in the set and its description): a multilingual task is
Multilingual whatever it asks, reasoning about people and language use is Social, and a task that is not in the table
is Other.
"""

from __future__ import annotations

from collections.abc import Mapping

CATEGORIES = (
    "Logic",
    "Social",
    "Multilingual",
    "Linguistics",
    "Math",
    "Commonsense",
    "Code",
    "Factual",
    "Other",
    "Reading",
)

_MEMBERS = {
    "Logic": """
        analogical_similarity analytic_entailment checkmate_in_one chess_state_tracking codenames color
        conceptual_combinations cryptonite date_understanding dyck_languages entailed_polarity epistemic_reasoning
        evaluating_information_essentiality formal_fallacies_syllogisms_negation geometric_shapes
        identify_odd_metaphor key_value_maps known_unknowns logic_grid_puzzle logical_args logical_deduction
        logical_fallacy_detection logical_sequence mathematical_induction navigate novel_concepts object_counting
        odd_one_out penguins_in_a_table presuppositions_as_nli reasoning_about_colored_objects repeat_copy_logic
        sufficient_information symbol_interpretation temporal_sequences tracking_shuffled_objects undo_permutation
        auto_categorization
    """,
    "Social": """
        bbq_lite_json causal_judgment dark_humor_detection emojis_emotion_prediction figure_of_speech_detection
        hhh_alignment implicatures intent_recognition irony_identification moral_permissibility
        movie_dialog_same_or_different movie_recommendation play_dialog_same_or_different ruin_names
        simple_ethical_questions snarks social_iqa social_support strange_stories suicide_risk topical_chat
    """,
    "Multilingual": """
        conlang_translation cryobiology_spanish english_russian_proverbs entailed_polarity_hindi
        gem gender_inclusive_sentences_german hindi_question_answering hinglish_toxicity
        international_phonetic_alphabet_nli international_phonetic_alphabet_transliterate kanji_ascii kannada
        language_games language_identification misconceptions_russian multiemo parsinlu_qa
        parsinlu_reading_comprehension persian_idioms polish_sequence_labeling salient_translation_error_detection
        swahili_english_proverbs swedish_to_german_proverbs what_is_the_tao
    """,
    "Linguistics": """
        bridging_anaphora_resolution_barqa common_morpheme crash_blossom disambiguation_qa
        discourse_marker_prediction hyperbaton linguistic_mappings linguistics_puzzles metaphor_boolean
        metaphor_understanding nonsense_words_grammar phrase_relatedness rephrase sentence_ambiguity
        similarities_abstraction tense winowhy word_sorting word_unscrambling
    """,
    "Math": """
        arithmetic chinese_remainder_theorem elementary_math_qa identify_math_theorems intersect_geometry
        matrixshapes modified_arithmetic operators physics physics_questions simple_arithmetic_json
        simple_arithmetic_json_multiple_choice simple_arithmetic_json_subtasks
        simple_arithmetic_multiple_targets_json unit_conversion unit_interpretation
        unnatural_in_context_learning
    """,
    "Commonsense": """
        anachronisms cause_and_effect crass_ai emoji_movie empirical_judgments english_proverbs fantasy_reasoning
        goal_step_wikihow human_organs_senses implicit_relations misconceptions physical_intuition riddle_sense
        sports_understanding strategyqa timedial
    """,
    "Code": """
        auto_debugging code_line_description cs_algorithms list_functions mult_data_wrangling
        semantic_parsing_in_context_sparc semantic_parsing_spider simp_turing_concept simple_text_editing
    """,
    "Factual": """
        contextual_parametric_knowledge_conflicts fact_checker general_knowledge hindu_knowledge periodic_elements
        qa_wikidata vitaminc_fact_verification
    """,
    "Other": """
        ascii_word_recognition authorship_verification cifar10_classification few_shot_nlg mnist_ascii
        natural_instructions real_or_fake_text scientific_press_release which_wiki_edit
    """,
    "Reading": """
        abstract_narrative_understanding disfl_qa gre_reading_comprehension minute_mysteries_qa
        paragraph_segmentation question_selection understanding_fables
    """,
}
CATEGORY: Mapping[str, str] = {task: category for category, tasks in _MEMBERS.items() for task in tasks.split()}
"""By task."""

_OPEN_ENDED = """
    auto_categorization codenames conlang_translation few_shot_nlg gem hindi_question_answering
    international_phonetic_alphabet_transliterate language_games minute_mysteries_qa natural_instructions
    qa_wikidata rephrase scientific_press_release semantic_parsing_in_context_sparc semantic_parsing_spider
    topical_chat
"""
OPEN_ENDED = frozenset(_OPEN_ENDED.split())
"""Tasks whose preferred metric compares texts (BLEU, ROUGE, BLEURT, likelihood): judged by chrF where no choices are
given. All others have one right answer."""
